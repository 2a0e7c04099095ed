//! The bodies of the platform's answers: there as a whole, or passed piece by piece.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http_body_util::Full;
use hyper::body::{Body, Frame, SizeHint};
use tokio::sync::mpsc;

/// What ends an answer: bytes that follow its last piece, or an error for one that is not to end well.
pub(crate) type End = Pin<Box<dyn Future<Output = io::Result<Option<Bytes>>> + Send>>;

/// The body of an answer.
#[derive(Debug)]
pub enum AnswerBody {
    /// All of it is there.
    Whole(Full<Bytes>),
    /// It is being made.
    Passing(Passing),
}

/// A body that is passed on while it is made. Its last piece, or what shows that there is none left, waits
/// for the end.
pub struct Passing {
    /// What comes before the pieces.
    first: Option<Bytes>,
    pieces: Option<mpsc::Receiver<Bytes>>,
    /// What each piece is sent as.
    frame: fn(Bytes) -> Bytes,
    /// Bytes to come, if their number was announced.
    left: Option<u64>,
    /// The last of as many bytes as were announced.
    last: Option<Bytes>,
    end: Option<End>,
}

impl std::fmt::Debug for Passing {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Passing").field("left", &self.left).finish_non_exhaustive()
    }
}

impl Passing {
    /// The pieces as they come, as many bytes as `announced`.
    pub(crate) fn new(pieces: mpsc::Receiver<Bytes>, announced: Option<u64>, end: End) -> Self {
        let (pieces, end) = (Some(pieces), Some(end));
        Self { first: None, pieces, frame: |piece| piece, left: announced, last: None, end }
    }

    /// Only these bytes, which wait for the end.
    pub(crate) fn of_last(bytes: Bytes, end: End) -> Self {
        let left = Some(bytes.len() as u64);
        let last = Some(bytes);
        Self { first: None, pieces: None, frame: |piece| piece, left, last, end: Some(end) }
    }

    /// After the bytes `first`.
    pub(crate) fn after(self, first: Bytes) -> Self {
        Self { first: Some(first).filter(|it| !it.is_empty()), ..self }
    }

    /// Each piece in a frame.
    pub(crate) fn framed(self, frame: fn(Bytes) -> Bytes) -> Self {
        Self { frame, ..self }
    }

    fn poll_piece(&mut self, context: &mut Context<'_>) -> Poll<Option<io::Result<Bytes>>> {
        if let Some(first) = self.first.take() {
            return Poll::Ready(Some(Ok((self.frame)(first))));
        }
        while let Some(pieces) = &mut self.pieces {
            match ready!(pieces.poll_recv(context)) {
                None => self.pieces = None,
                Some(piece) if piece.is_empty() => {}
                Some(piece) => match &mut self.left {
                    Some(left) if piece.len() as u64 >= *left => {
                        self.last = Some(piece);
                        self.pieces = None;
                    }
                    left => {
                        if let Some(left) = left {
                            *left -= piece.len() as u64;
                        }
                        return Poll::Ready(Some(Ok((self.frame)(piece))));
                    }
                },
            }
        }
        let Some(end) = &mut self.end else { return Poll::Ready(None) };
        let ended = ready!(end.as_mut().poll(context));
        self.end = None;
        match ended {
            Err(error) => Poll::Ready(Some(Err(error))),
            Ok(rest) => {
                self.left = self.left.map(|_| 0);
                let last = self.last.take().map(self.frame);
                Poll::Ready(last.or(rest).map(Ok))
            }
        }
    }
}

impl Default for AnswerBody {
    fn default() -> Self {
        Self::Whole(Full::default())
    }
}

impl From<Bytes> for AnswerBody {
    fn from(bytes: Bytes) -> Self {
        Self::Whole(Full::new(bytes))
    }
}

impl Body for AnswerBody {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        match self.get_mut() {
            Self::Whole(body) => Pin::new(body)
                .poll_frame(context)
                .map(|frame| frame.map(|frame| frame.map_err(|never| match never {}))),
            Self::Passing(body) => {
                let piece = body.poll_piece(context);
                piece.map(|piece| piece.map(|piece| piece.map(Frame::data)))
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Whole(body) => body.is_end_stream(),
            Self::Passing(body) => body.end.is_none(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Whole(body) => body.size_hint(),
            Self::Passing(body) => body.left.map_or_else(SizeHint::default, SizeHint::with_exact),
        }
    }
}

#[cfg(test)]
mod tests {
    use http_body_util::BodyExt;
    use tokio::sync::oneshot;

    use super::*;

    /// A body of these pieces, and what lets it end.
    async fn body(
        pieces: &[&'static str],
        announced: Option<u64>,
    ) -> (Passing, oneshot::Sender<io::Result<Option<Bytes>>>) {
        let (sender, receiver) = mpsc::channel(8);
        for piece in pieces {
            sender.send(Bytes::from_static(piece.as_bytes())).await.unwrap();
        }
        let (end, ended) = oneshot::channel();
        let end_of_it: End = Box::pin(async move { ended.await.unwrap() });
        (Passing::new(receiver, announced, end_of_it), end)
    }

    async fn next(body: &mut AnswerBody) -> Option<Result<Bytes, String>> {
        let frame = body.frame().await?;
        Some(frame.map(|frame| frame.into_data().unwrap()).map_err(|error| error.to_string()))
    }

    async fn waits(body: &mut AnswerBody) -> bool {
        let waited = tokio::time::timeout(std::time::Duration::from_millis(20), body.frame());
        waited.await.is_err()
    }

    #[tokio::test]
    async fn the_last_piece_waits_for_the_end_if_the_size_is_known() {
        let (passing, end) = body(&["ab", "", "cd"], Some(4)).await;
        let mut body = AnswerBody::Passing(passing);
        assert_eq!(body.size_hint().exact(), Some(4));
        assert_eq!(next(&mut body).await, Some(Ok("ab".into())));
        assert!(waits(&mut body).await);
        end.send(Ok(None)).unwrap();
        assert_eq!(next(&mut body).await, Some(Ok("cd".into())));
        assert!(body.is_end_stream());
        assert_eq!(next(&mut body).await, None);
    }

    #[tokio::test]
    async fn what_is_there_as_a_whole_waits_too() {
        let (end, ended) = oneshot::channel::<()>();
        let end_of_it: End = Box::pin(async move {
            ended.await.unwrap();
            Ok(None)
        });
        let mut body = AnswerBody::Passing(Passing::of_last("abcd".into(), end_of_it));
        assert_eq!(body.size_hint().exact(), Some(4));
        assert!(waits(&mut body).await);
        end.send(()).unwrap();
        assert_eq!(next(&mut body).await, Some(Ok("abcd".into())));
        assert!(body.is_end_stream());
    }

    #[tokio::test]
    async fn otherwise_the_end_itself_waits() {
        let (passing, end) = body(&["ab"], None).await;
        let mut body = AnswerBody::Passing(
            passing.after("<".into()).framed(|piece| [b"[", &piece[..], b"]"].concat().into()),
        );
        assert_eq!(next(&mut body).await, Some(Ok("[<]".into())));
        assert_eq!(next(&mut body).await, Some(Ok("[ab]".into())));
        assert!(waits(&mut body).await);
        end.send(Ok(Some("!".into()))).unwrap();
        assert_eq!(next(&mut body).await, Some(Ok("!".into())));
        assert_eq!(next(&mut body).await, None);
    }

    #[tokio::test]
    async fn what_does_not_end_well_is_an_error() {
        for announced in [None, Some(2), Some(3)] {
            let (passing, end) = body(&["ab"], announced).await;
            end.send(Err(io::Error::other("cut"))).unwrap();
            let mut body = AnswerBody::Passing(passing);
            if announced != Some(2) {
                assert_eq!(next(&mut body).await, Some(Ok("ab".into())));
            }
            assert_eq!(next(&mut body).await, Some(Err("cut".into())));
        }
    }
}
