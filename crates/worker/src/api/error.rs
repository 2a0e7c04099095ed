//! Errors as Lambda's API gives them: a type, a status and a sentence.

use bytes::Bytes;
use http::{Response, StatusCode};
use serde_json::json;
use uncia_policy::Rejection;

use crate::answer_body::AnswerBody;
use crate::function::Function;
use crate::store::{PackageError, StoreError, is_disk_full};

pub(crate) type Answer = Response<AnswerBody>;

/// An error of the API.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{kind}: {message}")]
pub(crate) struct ApiError {
    pub status: StatusCode,
    pub kind: &'static str,
    pub message: String,
}

impl ApiError {
    fn new(status: StatusCode, kind: &'static str, message: impl Into<String>) -> Self {
        Self { status, kind, message: message.into() }
    }

    pub(crate) fn invalid(message: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "InvalidParameterValueException", message)
    }

    pub(crate) fn content(message: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "InvalidRequestContentException", message)
    }

    pub(crate) fn not_found(message: impl Into<String>) -> Self {
        Self::new(StatusCode::NOT_FOUND, "ResourceNotFoundException", message)
    }

    pub(crate) fn conflict(message: impl Into<String>) -> Self {
        Self::new(StatusCode::CONFLICT, "ResourceConflictException", message)
    }

    pub(crate) fn precondition(message: impl Into<String>) -> Self {
        Self::new(StatusCode::PRECONDITION_FAILED, "PreconditionFailedException", message)
    }

    pub(crate) fn too_large(bytes: usize, most: usize) -> Self {
        let message = format!("{bytes} byte payload is too large; at most {most} bytes are taken");
        Self::new(StatusCode::PAYLOAD_TOO_LARGE, "RequestTooLargeException", message)
    }

    pub(crate) fn throttled(message: impl Into<String>) -> Self {
        Self::new(StatusCode::TOO_MANY_REQUESTS, "TooManyRequestsException", message)
    }

    pub(crate) fn too_slow(message: impl Into<String>) -> Self {
        Self::new(StatusCode::REQUEST_TIMEOUT, "RequestTimeoutException", message)
    }

    pub(crate) fn denied(message: impl Into<String>) -> Self {
        Self::new(StatusCode::FORBIDDEN, "AccessDeniedException", message)
    }

    /// A signature is missing or wrong.
    pub(crate) fn unsigned(kind: &'static str, message: String) -> Self {
        Self::new(StatusCode::FORBIDDEN, kind, message)
    }

    pub(crate) fn no_operation(method: &http::Method, path: &str) -> Self {
        let message = format!("{method} {path} is not an operation of this API");
        Self::new(StatusCode::NOT_FOUND, "UnknownOperationException", message)
    }

    pub(crate) fn not_provisioned() -> Self {
        let message = "No Provisioned Concurrency Config found for this function";
        Self::new(StatusCode::NOT_FOUND, "ProvisionedConcurrencyConfigNotFoundException", message)
    }

    /// Says why a function that was damaged cannot be used.
    pub(crate) fn broken(function: &Function) -> Self {
        let reason = function.broken.as_deref().unwrap_or("it was damaged");
        Self::unready(format!("The function {} cannot run: {reason}", function.name))
    }

    /// Says why something that was damaged cannot be used.
    pub(crate) fn unready(message: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_GATEWAY, "ResourceNotReadyException", message)
    }

    pub(crate) fn unavailable(message: impl Into<String>) -> Self {
        Self::new(StatusCode::SERVICE_UNAVAILABLE, "ServiceException", message)
    }

    pub(crate) fn service(message: impl Into<String>) -> Self {
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, "ServiceException", message)
    }

    pub(crate) fn bad_http(message: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "BadRequestException", message)
    }

    /// The answer that says it.
    pub(crate) fn answer(&self) -> Answer {
        let fault = if self.status.is_server_error() { "Service" } else { "User" };
        let mut body = json!({"Type": fault, "Message": self.message, "message": self.message});
        if self.status == StatusCode::FORBIDDEN || self.status == StatusCode::UNAUTHORIZED {
            // Where state machines' API is asked, too, whose clients find the kind here.
            body["__type"] = json!(self.kind);
        }
        if self.status == StatusCode::TOO_MANY_REQUESTS {
            body["Reason"] = json!("ConcurrentInvocationLimitExceeded");
        }
        let mut answer = json_answer(self.status, &body);
        answer.headers_mut().insert("x-amzn-errortype", http::HeaderValue::from_static(self.kind));
        answer
    }
}

impl From<PackageError> for ApiError {
    fn from(error: PackageError) -> Self {
        match error {
            PackageError::Io(io) if is_disk_full(&io) => {
                Self::service("The disk is full: the package was not stored")
            }
            PackageError::Io(_) => Self::service(error.to_string()),
            PackageError::Zipped(_) => Self::new(
                StatusCode::PAYLOAD_TOO_LARGE,
                "RequestTooLargeException",
                error.to_string(),
            ),
            _ => Self::invalid(error.to_string()),
        }
    }
}

impl From<StoreError> for ApiError {
    fn from(error: StoreError) -> Self {
        Self::service(format!("The change was not stored: {error}"))
    }
}

impl From<Rejection> for ApiError {
    fn from(rejection: Rejection) -> Self {
        match rejection {
            Rejection::FunctionLimit => Self::throttled(
                "Rate Exceeded: as many requests of the function are in flight as it may have",
            ),
            Rejection::WorkerLimit => Self::throttled(
                "Rate Exceeded: as many requests are in flight as the platform takes",
            ),
            Rejection::TooLarge => {
                Self::invalid("An instance of the function is larger than the platform's capacity")
            }
            Rejection::NoFunction => Self::not_found("The function was deleted"),
            Rejection::StartFailed(_) => Self::service("The instance could not be started"),
            Rejection::ShuttingDown => Self::unavailable("The platform is shutting down"),
        }
    }
}

/// A JSON answer.
pub(super) fn json_answer(status: StatusCode, body: &serde_json::Value) -> Answer {
    let mut answer = Response::new(Bytes::from(body.to_string()).into());
    *answer.status_mut() = status;
    answer
        .headers_mut()
        .insert(http::header::CONTENT_TYPE, http::HeaderValue::from_static("application/json"));
    answer
}

/// An answer without a body.
pub(super) fn empty_answer(status: StatusCode) -> Answer {
    let mut answer = Response::new(AnswerBody::default());
    *answer.status_mut() = status;
    answer
}
