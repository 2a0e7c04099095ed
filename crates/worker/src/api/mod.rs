//! The Lambda API, function URLs, and the platform's own log, over HTTP.

mod admission;
mod aliases;
mod body;
mod concurrency;
mod confine;
mod connections;
mod description;
mod error;
mod events;
mod forms;
mod functions;
mod guard;
mod hints;
mod images;
mod invoke;
mod joining;
mod layers;
mod limits;
mod logs;
pub(crate) mod machines;
mod packages;
mod pages;
mod permissions;
mod provisioned;
mod route;
mod server_urls;
mod streams;
mod tags;
mod triggers;
mod urls;
mod versions;

use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use http::request::Parts;
use http::{HeaderValue, Response};
use http_body_util::Either;
use hyper::body::Incoming;

use admission::Admission;
pub(crate) use body::HangUp;
pub(crate) use connections::Client;
pub(crate) use error::{Answer, ApiError};
pub(crate) use route::query_values;
pub(crate) use triggers::begin_change;

use crate::access::Access;
use crate::answer_body::AnswerBody;
use crate::cluster::{JOIN_PATH, Members};
use crate::config::Config;
use crate::dispatch::Dispatcher;
use crate::features::Features;
use crate::function::Function;
use crate::instance::{Caller, Capabilities, Host};
use crate::machines::Machines;
use crate::meterlog::MeterLog;
use crate::monitor::Monitor;
use crate::output::OutputLog;
use crate::page::{self, LiveBody, Page};
use crate::store::Registry;
use crate::traces::Traces;
use crate::triggers::Triggers;

/// The account and region that ARNs carry.
pub(crate) const ARN_PREFIX: &str = "arn:aws:lambda:us-east-1:000000000000:function:";

const LAYER_ARN_PREFIX: &str = "arn:aws:lambda:us-east-1:000000000000:layer:";

/// Sentences of one kind, about a function each, that are passed on.
const MAX_SENTENCES: usize = 8;

/// Everything that a request may need.
pub(crate) struct Api {
    pub config: Config,
    /// What the addresses of its functions begin with: `http://127.0.0.1:9001`.
    pub base_url: String,
    /// By which credentials signatures and tokens are believed.
    pub access: Access,
    /// Whether whoever comes by its address must have them.
    pub is_guarded: bool,
    pub host: Arc<Host>,
    pub registry: Arc<Registry>,
    pub dispatcher: Dispatcher,
    pub log: Arc<MeterLog>,
    pub monitor: Arc<Monitor>,
    pub page: Page,
    pub machines: Arc<Machines>,
    pub triggers: Triggers,
    pub traces: Option<Arc<Traces>>,
    /// The workers that have joined, if this is a controller.
    pub members: Option<Arc<Members>>,
    pub output: Arc<OutputLog>,
    /// What is on here, once it is known.
    pub features: OnceLock<Features>,
}

impl Api {
    /// Answers a request, the one for the page's events as long as its client listens.
    async fn reply(
        self: &Arc<Self>,
        request: http::Request<Incoming>,
        client: Client,
        from_function: bool,
    ) -> Response<Either<AnswerBody, LiveBody>> {
        let (mut head, body) = request.into_parts();
        guard::direct_by_host(&mut head);
        if let Some(refusal) = self.refuse(&head, client, from_function) {
            // A stranger keeps no connection by being refused.
            let refusal = if self.is_guarded { last(refusal) } else { refusal };
            return refusal.map(Either::Left);
        }
        let admission = match self.admit(&head, client) {
            Ok(admission) => admission,
            Err(refusal) => return self.turn_away(refusal, &head).map(Either::Left),
        };
        if head.method == http::Method::GET && head.uri.path() == JOIN_PATH {
            if let Err(refusal) = self.check(admission, &head, &Bytes::new()).await {
                return self.turn_away(refusal, &head).map(Either::Left);
            }
            let joined = joining::join(self, &mut head);
            return joined.unwrap_or_else(|error| error.answer()).map(Either::Left);
        }
        if head.method == http::Method::GET && head.uri.path() == page::LIVE_PATH {
            if let Err(refusal) = self.check(admission, &head, &Bytes::new()).await {
                return self.turn_away(refusal, &head).map(Either::Left);
            }
            return match page::watch(self, &head) {
                Ok(events) => events.map(Either::Right),
                Err(error) => error.answer().map(Either::Left),
            };
        }
        self.answer(head, body, admission).await.map(Either::Left)
    }

    /// The answer to who may not ask, and to a request of which it is not sure where it ends.
    fn refuse(&self, head: &Parts, client: Client, from_function: bool) -> Option<Answer> {
        if from_function && !head.uri.path().starts_with("/url/") {
            let error = ApiError::denied(
                "Functions may not manage the platform; those with the tag uncia:network set to \
                 platform may invoke others, at AWS_ENDPOINT_URL_LAMBDA",
            );
            return Some(error.answer());
        }
        if let Err(error) = guard::check(&self.config, client, head) {
            return Some(error.answer());
        }
        let framed = guard::check_framing(&head.headers);
        framed.err().map(|error| last(error.answer()))
    }

    async fn answer(self: &Arc<Self>, head: Parts, body: Incoming, admission: Admission) -> Answer {
        if let Some(function) = urls::server(self, head.uri.path()) {
            let has_own_host = guard::is_by_host(&head);
            let passed = server_urls::serve(self, function, head, body).await;
            let answer = passed.unwrap_or_else(|error| error.answer());
            return confine::confine(self, has_own_host, answer);
        }
        let body = match body::of_client(body, head.uri.path()).await {
            Ok(body) => body,
            Err(error) => return error.answer(),
        };
        if let Err(refusal) = self.check(admission, &head, &body).await {
            return self.turn_away(refusal, &head);
        }
        route::answer(self, &head, body).await.unwrap_or_else(|error| error.answer())
    }

    /// Serves the Invoke requests of instances that may make them, and nothing else. What a function
    /// says about itself is not believed: the parent is the invocation that its instance serves.
    pub(crate) async fn answer_instance(
        self: &Arc<Self>,
        request: http::Request<Incoming>,
    ) -> Answer {
        let answered = answer_of_invoke(request, async |name, head, body| {
            invoke::answer(self, &name, &head, body).await
        });
        answered.await
    }

    pub(crate) fn capabilities(&self) -> &Capabilities {
        self.host.capabilities()
    }

    /// What is on here, found out once: programs are tried for it, which no other request waits for.
    pub(crate) async fn features(self: &Arc<Self>) -> Result<Features, ApiError> {
        if let Some(features) = self.features.get() {
            return Ok(features.clone());
        }
        let api = self.clone();
        let find = move || Features::of(api.capabilities(), api.host.can_restore());
        let known = self.clone();
        let features =
            tokio::task::spawn_blocking(move || known.features.get_or_init(find).clone());
        features.await.map_err(|error| ApiError::service(format!("What is on here: {error}")))
    }

    /// What does not hold on this machine, and what the log has lost, a sentence each.
    pub(crate) fn warnings(&self) -> Vec<String> {
        let warnings = self.capabilities().warnings.iter().chain(self.log.warnings());
        let warnings =
            warnings.cloned().chain(self.host.refusals()).chain(self.precedence_warning());
        // Health is asked often, and of most platforms no function has such a sentence.
        let is_any = self.registry.packages().passes_over();
        let functions = if is_any { self.registry.all() } else { Vec::new() };
        let passed_over = functions.iter().filter_map(Function::passed_over);
        let warnings =
            warnings.chain(first_of(passed_over, "functions whose own byte code is passed over"));
        let warnings = warnings.chain(self.dispatcher.awake().warning());
        warnings.chain(self.triggers.warnings()).collect()
    }
}

impl Api {
    /// Where the platform is to say who goes first, and cannot: a sentence.
    fn precedence_warning(&self) -> Option<String> {
        if !self.config.precedence {
            return None;
        }
        if self.members.is_none() {
            return self.host.precedence_warning(self.config.asks_precedence);
        }
        self.config.asks_precedence.then(|| {
            "precedence has no effect: a controller runs nothing itself; give it to the workers that join".to_owned()
        })
    }
}

/// The first few of many sentences, and how many more of these `things` there are.
fn first_of(mut sentences: impl Iterator<Item = String>, things: &str) -> Vec<String> {
    let mut shown: Vec<_> = sentences.by_ref().take(MAX_SENTENCES).collect();
    let more = sentences.count();
    if more > 0 {
        shown.push(format!("There are {more} more {things}."));
    }
    shown
}

/// Answers a request of an instance by `invoke`, which gets the function's name, if it is Invoke. It says
/// of no invocation but the one that the instance serves that it is the parent.
pub(crate) async fn answer_of_invoke(
    request: http::Request<Incoming>,
    invoke: impl AsyncFnOnce(String, Parts, Bytes) -> Result<Answer, ApiError>,
) -> Answer {
    if let Err(error) = guard::check_framing(request.headers()) {
        return last(error.answer());
    }
    let (mut head, body) = request.into_parts();
    let caller = head.extensions.remove::<Caller>();
    head.headers.remove(invoke::INVOCATION_HEADER);
    head.headers.remove(invoke::PARENT_HEADER);
    let parent = caller.as_ref().and_then(|caller| caller.invocation.as_deref());
    if let Some(parent) = parent.and_then(|name| HeaderValue::from_str(name).ok()) {
        head.headers.insert(invoke::PARENT_HEADER, parent);
    }
    let path = head.uri.path();
    let name = path
        .strip_prefix("/2015-03-31/functions/")
        .and_then(|rest| rest.strip_suffix("/invocations"))
        .filter(|_| head.method == http::Method::POST);
    let Some(name) = name.map(str::to_owned) else {
        return ApiError::denied(format!(
            "{} {path} is not allowed from within a function; only Invoke is",
            head.method
        ))
        .answer();
    };
    let body = match body::of_function(body, caller.as_ref()).await {
        Ok(body) => body,
        Err(error) => return error.answer(),
    };
    invoke(name, head, body).await.unwrap_or_else(|error| error.answer())
}

/// The last answer of its connection.
fn last(mut answer: Answer) -> Answer {
    let close = HeaderValue::from_static("close");
    answer.headers_mut().insert(http::header::CONNECTION, close);
    answer
}

/// An answer with bytes.
pub(crate) fn bytes_answer(content_type: &'static str, body: impl Into<Bytes>) -> Answer {
    let mut answer = http::Response::new(body.into().into());
    answer
        .headers_mut()
        .insert(http::header::CONTENT_TYPE, http::HeaderValue::from_static(content_type));
    answer
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_many_sentences_a_few_are_told_and_the_others_counted() {
        let of = |count: usize| first_of((0..count).map(|it| it.to_string()), "functions");
        assert_eq!(of(0), [""; 0]);
        assert_eq!(of(MAX_SENTENCES).len(), MAX_SENTENCES);
        let messages = of(100_000);
        assert_eq!(messages.len(), MAX_SENTENCES + 1);
        assert_eq!(messages[MAX_SENTENCES], "There are 99992 more functions.");
    }
}
