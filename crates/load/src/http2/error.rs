use h2::Reason;

/// Why a request, or the whole connection, came to nothing.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum SessionError {
    #[error("the server does not speak HTTP/2: it said \"{said}\"")]
    NotHttp2 { said: String },
    #[error("the server closed the connection without a word; it may not speak HTTP/2")]
    Silent,
    #[error("the server reset the request: {0} ({0:?})")]
    Reset(Reason),
    #[error("the server went away without taking the request: {}", explain(.reason, .said))]
    Unprocessed { reason: Reason, said: String },
    #[error("the server gave the connection up: {}", explain(.reason, .said))]
    GoneAway { reason: Reason, said: String },
    #[error("the answer is not valid HTTP/2: {0} ({0:?})")]
    InvalidAnswer(Reason),
    #[error("the connection broke the rules of HTTP/2: {}", explain(.reason, .said))]
    Protocol { reason: Reason, said: String },
    #[error("the server closed the connection before it answered")]
    NoAnswer,
    #[error("the server closed the connection after {received} of {expected} bytes of its answer")]
    EndedInBody { received: u64, expected: u64 },
    #[error("the server closed the connection within its answer, after {received} bytes")]
    EndedInStream { received: u64 },
    #[error("the server closed the connection")]
    Closed,
    #[error("the connection takes no more requests now")]
    Full,
    #[error("the request cannot be sent by HTTP/2: {0}")]
    InvalidRequest(String),
}

fn explain(reason: &Reason, said: &str) -> String {
    match said {
        "" => format!("{reason} ({reason:?})"),
        said => format!("{reason} ({reason:?}: {said})"),
    }
}

impl SessionError {
    /// Why a connection ended, by the error that `h2` ended with.
    pub(super) fn of_connection(error: &h2::Error) -> Self {
        let said = debug_data(error);
        match error.reason() {
            Some(reason) if error.is_remote() => Self::GoneAway { reason, said },
            Some(reason) => Self::Protocol { reason, said },
            // The pipe has no errors of its own but its end.
            None => Self::Closed,
        }
    }

    /// Why an exchange ended, where it was not the end of the connection that ended it.
    pub(super) fn of_exchange(error: &h2::Error) -> Option<Self> {
        let reason = error.reason()?;
        match (error.is_reset(), error.is_remote()) {
            (true, true) => Some(Self::Reset(reason)),
            (true, false) => Some(Self::InvalidAnswer(reason)),
            // GOAWAY touches no stream but those that it leaves out.
            (false, true) => Some(Self::Unprocessed { reason, said: debug_data(error) }),
            (false, false) => None,
        }
    }

    /// Whether the server has said that it did not look at the request (RFC 9113, 8.7).
    pub(super) fn is_unprocessed(&self) -> bool {
        matches!(self, Self::Unprocessed { .. } | Self::Reset(Reason::REFUSED_STREAM))
    }
}

/// What a GOAWAY said beside its reason: `h2` tells it nowhere but in its sentence.
fn debug_data(error: &h2::Error) -> String {
    let text = error.to_string();
    let quoted = text.strip_suffix("\")").and_then(|text| text.split_once(" (b\""));
    quoted.map_or(String::new(), |(_, said)| said.to_owned())
}
