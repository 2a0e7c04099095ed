//! Server-sent events for everybody who has the page open.
//!
//! Each second has one message, which all who watch share. Who takes it late gets the next one that is
//! whole instead of those it missed, and who takes none for long loses its connection: nobody makes the
//! platform keep more than a message.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::request::Parts;
use http::{HeaderValue, Response};
use hyper::body::{Body, Frame};
use tokio::sync::{mpsc, watch};
use tokio::time::{MissedTickBehavior, interval, timeout};

use super::{put_headers, snapshot};
use crate::api::{Api, ApiError, HangUp};

/// Where the events are.
pub(crate) const PATH: &str = "/uncia/v1/live";
/// Pages that are kept up to date at a time.
const MAX_VIEWERS: usize = 64;
/// Between two messages.
const INTERVAL: Duration = Duration::from_secs(1);
/// Who has not taken a message by then is not there any more.
const PATIENCE: Duration = Duration::from_secs(60);

/// Who watches, and what they are to learn.
pub(crate) struct Page {
    news: watch::Sender<News>,
    /// How many watch.
    viewers: watch::Sender<usize>,
    /// Whether messages are made: as long as somebody watches, nearly.
    is_ticking: Mutex<bool>,
}

/// The newest of each kind of message.
#[derive(Debug, Clone, Default)]
struct News {
    /// What has happened in the last second.
    tick: Message,
    /// The bills, complete.
    bills: Message,
    /// Whether somebody computes bills.
    has_biller: bool,
    /// The platform ends.
    is_closed: bool,
}

/// An event as it is sent, with its number; 0 before the first.
#[derive(Debug, Clone, Default)]
struct Message {
    number: u64,
    event: Bytes,
}

impl Message {
    fn replace(&mut self, event: Bytes) {
        *self = Self { number: self.number + 1, event };
    }
}

impl Page {
    pub(crate) fn new() -> Self {
        let (news, viewers) = (watch::Sender::default(), watch::Sender::new(0));
        Self { news, viewers, is_ticking: Mutex::new(false) }
    }

    /// How many watch.
    pub(crate) fn viewers(&self) -> usize {
        *self.viewers.borrow()
    }

    /// Resolves when somebody watches, or the platform ends.
    pub(super) async fn watched(&self) {
        let (mut viewers, mut news) = (self.viewers.subscribe(), self.news.subscribe());
        // Both senders are in `self`.
        tokio::select! {
            _ = viewers.wait_for(|viewers| *viewers > 0) => {}
            _ = news.wait_for(|news| news.is_closed) => {}
        }
    }

    /// Whether somebody computes bills.
    pub(super) fn has_biller(&self) -> bool {
        self.news.borrow().has_biller
    }

    /// Remembers that somebody computes bills.
    pub(super) fn note_biller(&self) {
        let is_new = |news: &mut News| !std::mem::replace(&mut news.has_biller, true);
        self.news.send_if_modified(is_new);
    }

    /// Shows new bills: an object of JSON in one line.
    pub(super) fn show_bills(&self, json: &str) {
        let event = Bytes::from(format!("event: bills\ndata: {json}\n\n"));
        self.news.send_modify(|news| news.bills.replace(event));
    }

    /// Ends all streams of events.
    pub(crate) fn close(&self) {
        self.news.send_modify(|news| news.is_closed = true);
    }

    /// Counts a viewer, if there may be one more; tells whether the messages are to be begun.
    fn enter(&self) -> Option<bool> {
        let mut is_ticking = self.is_ticking.lock().unwrap_or_else(PoisonError::into_inner);
        if self.viewers() == MAX_VIEWERS {
            return None;
        }
        self.viewers.send_modify(|viewers| *viewers += 1);
        Some(!std::mem::replace(&mut is_ticking, true))
    }

    /// Whether messages are still needed; if not, whoever enters next begins them anew.
    fn needs_ticks(&self) -> bool {
        let mut is_ticking = self.is_ticking.lock().unwrap_or_else(PoisonError::into_inner);
        *is_ticking = self.viewers() > 0 && !self.news.borrow().is_closed;
        *is_ticking
    }
}

/// Answers with the events, as long as the client listens.
pub(crate) fn watch(api: &Arc<Api>, head: &Parts) -> Result<Response<LiveBody>, ApiError> {
    let Some(is_first) = api.page.enter() else {
        return Err(ApiError::unavailable(format!(
            "{MAX_VIEWERS} pages are open already; close one of them"
        )));
    };
    if is_first {
        tokio::spawn(tick(api.clone()));
    }
    let (events, received) = mpsc::channel(1);
    let viewer = Viewer {
        api: api.clone(),
        events,
        hang_up: head.extensions.get::<HangUp>().cloned().unwrap_or_default(),
    };
    tokio::spawn(viewer.follow());
    let mut response = Response::new(LiveBody(received));
    put_headers(response.headers_mut());
    let headers = response.headers_mut();
    let content_type = HeaderValue::from_static("text/event-stream");
    headers.insert(http::header::CONTENT_TYPE, content_type);
    headers.insert(http::header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    Ok(response)
}

/// Makes the messages, until nobody watches.
async fn tick(api: Arc<Api>) {
    let mut interval = interval(INTERVAL);
    interval.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut cursor = snapshot::Cursor::now(&api);
    // The first is due at once; those who have just come get what is whole.
    interval.tick().await;
    loop {
        interval.tick().await;
        if !api.page.needs_ticks() {
            return;
        }
        let event = snapshot::since(&api, &mut cursor).await;
        api.page.news.send_modify(|news| news.tick.replace(event));
    }
}

/// One who watches, on their way to the events' client.
struct Viewer {
    api: Arc<Api>,
    events: mpsc::Sender<Bytes>,
    hang_up: HangUp,
}

impl Viewer {
    /// Sends what is new until the client is gone or the platform ends.
    async fn follow(self) {
        let mut news = self.api.page.news.subscribe();
        let (mut tick, mut bills) = (None, 0);
        loop {
            let new = news.borrow_and_update().clone();
            if new.is_closed {
                return;
            }
            if tick != Some(new.tick.number) {
                let has_missed = tick.is_none_or(|tick| tick + 1 != new.tick.number);
                let event =
                    if has_missed { snapshot::whole(&self.api).await } else { new.tick.event };
                if !self.send(event).await {
                    return;
                }
                tick = Some(new.tick.number);
            }
            if bills != new.bills.number {
                if !self.send(new.bills.event).await {
                    return;
                }
                bills = new.bills.number;
            }
            tokio::select! {
                // Its sender is in `self`.
                _ = news.changed() => {}
                () = self.events.closed() => return,
            }
        }
    }

    /// Whether the client goes on.
    async fn send(&self, event: Bytes) -> bool {
        match timeout(PATIENCE, self.events.send(event)).await {
            Ok(sent) => sent.is_ok(),
            Err(_) => {
                self.hang_up.ask();
                false
            }
        }
    }
}

impl Drop for Viewer {
    fn drop(&mut self) {
        self.api.page.viewers.send_modify(|viewers| *viewers -= 1);
    }
}

/// The body of an answer whose events come one after the other.
pub(crate) struct LiveBody(mpsc::Receiver<Bytes>);

impl Body for LiveBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        self.0.poll_recv(context).map(|event| event.map(|event| Ok(Frame::data(event))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn viewers_are_bounded_and_the_first_begins_the_messages() {
        let page = Page::new();
        assert!(!page.needs_ticks());
        assert_eq!(page.enter(), Some(true));
        for _ in 1..MAX_VIEWERS {
            assert_eq!(page.enter(), Some(false));
        }
        assert_eq!(page.enter(), None);
        assert!(page.needs_ticks());
        page.viewers.send_modify(|viewers| *viewers = 0);
        assert!(!page.needs_ticks());
        assert_eq!(page.enter(), Some(true), "they had ended");
    }

    #[tokio::test]
    async fn whoever_waits_for_viewers_learns_of_the_end() {
        let page = Arc::new(Page::new());
        let waiting = tokio::spawn({
            let page = page.clone();
            async move { page.watched().await }
        });
        tokio::task::yield_now().await;
        assert!(!waiting.is_finished());
        page.close();
        waiting.await.unwrap();
        assert!(!page.needs_ticks());
    }
}
