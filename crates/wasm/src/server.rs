//! Serves the platform: orders, and invocations.

use std::collections::HashMap;
use std::convert::Infallible;
use std::path::PathBuf;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderName, HeaderValue, Request, Response, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::server::conn::http1::Builder;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::net::TcpListener;
use tokio::sync::oneshot;
use uncia_code::{FUNCTION, Failure, Kind, Load, ORDER, Order, REPORT, Report, TIMEOUT_MS};
use wasmtime::Engine;
use wasmtime::component::Linker;

use crate::component;
use crate::engine::{engine, linker};
use crate::exchange::{AnswerBody, Running, strip};
use crate::isolate::{Function, Host, State, run};
use crate::room::{Room, possible};
use crate::ticker::Ticker;
use crate::usage::Usage;

/// For invocations that name no time.
const TIMEOUT: Duration = Duration::from_secs(30);

/// Runs the code of functions.
pub(crate) struct Server {
    host: Arc<Host>,
    linker: Linker<State>,
    /// Where compiled components are.
    components: PathBuf,
    functions: RwLock<HashMap<String, Arc<Function>>>,
    /// What runs if an invocation names no function: the only one then.
    only: Option<Arc<Function>>,
}

impl Server {
    /// A server that loads functions from a folder, when it is told to.
    pub(crate) fn new(components: PathBuf) -> Result<Self, String> {
        let engine = engine().map_err(|error| component::one_line(&error))?;
        let linker = linker(&engine).map_err(|error| component::one_line(&error))?;
        let ticker = Ticker::start(&engine).map_err(|error| error.to_string())?;
        let room = Room::new();
        let host = Arc::new(Host { engine, ticker, room });
        Ok(Self { host, linker, components, functions: RwLock::default(), only: None })
    }

    /// A server of one function, whose compiled component is `file` in the folder.
    pub(crate) fn only(mut self, load: &Load) -> Result<Self, Failure> {
        self.only = Some(Arc::new(self.function(load)?));
        Ok(self)
    }

    pub(crate) fn engine(&self) -> &Engine {
        &self.host.engine
    }

    pub(crate) fn linker(&self) -> &Linker<State> {
        &self.linker
    }

    /// Serves connections until the process ends.
    pub(crate) async fn serve(self: Arc<Self>, listener: TcpListener) {
        loop {
            let Ok((stream, _)) = listener.accept().await else {
                // As long as there are too many open files.
                tokio::time::sleep(Duration::from_millis(10)).await;
                continue;
            };
            let _ = stream.set_nodelay(true);
            let server = self.clone();
            tokio::spawn(async move {
                let service = service_fn(move |request| {
                    let server = server.clone();
                    async move { Ok::<_, Infallible>(server.answer(request).await) }
                });
                // What goes wrong on a connection, its client learns.
                let _ = Builder::new()
                    .half_close(false)
                    .serve_connection(TokioIo::new(stream), service)
                    .await;
            });
        }
    }

    async fn answer(self: Arc<Self>, request: Request<Incoming>) -> Response<AnswerBody> {
        let is_order = self.only.is_none() && request.headers().contains_key(ORDER);
        if is_order {
            return self.obey(request).await.unwrap_or_else(|failure| refuse(&failure));
        }
        match self.invoked(&request) {
            Ok(function) => self.invoke(function, request).await,
            Err(failure) => refuse(&failure),
        }
    }

    async fn obey(
        self: Arc<Self>,
        request: Request<Incoming>,
    ) -> Result<Response<AnswerBody>, Failure> {
        let text = |name: &str| request.headers().get(name).and_then(|it| it.to_str().ok());
        let order = text(ORDER).and_then(Order::named);
        let name = text(FUNCTION).unwrap_or_default().to_owned();
        let order = order.ok_or_else(|| Failure::new(Kind::Unknown, "there is no such order"))?;
        let body = request.into_body().collect().await;
        let body = body.map_err(|error| Failure::new(Kind::Unknown, error))?.to_bytes();
        match order {
            Order::Ping => Ok(done(Bytes::new())),
            Order::Unload => {
                self.functions.write().unwrap_or_else(PoisonError::into_inner).remove(&name);
                Ok(done(Bytes::new()))
            }
            Order::Load => {
                let load: Load = serde_json::from_slice(&body)
                    .map_err(|error| Failure::new(Kind::Unknown, error))?;
                let function = Arc::new(self.function(&load)?);
                let mut functions = self.functions.write().unwrap_or_else(PoisonError::into_inner);
                functions.insert(load.function, function);
                Ok(done(Bytes::new()))
            }
            Order::Compile => {
                let server = self.clone();
                let compile = move || component::compile(server.engine(), server.linker(), &body);
                let compiled = tokio::task::spawn_blocking(compile).await;
                compiled
                    .unwrap_or_else(|_| {
                        Err(Failure::new(Kind::Component, "the compiler has panicked"))
                    })
                    .map(|machine_code| done(machine_code.into()))
            }
        }
    }

    fn function(&self, load: &Load) -> Result<Function, Failure> {
        let path = self.components.join(&load.file);
        // SAFETY: the folder holds what `Order::Compile` has answered: only the platform writes to it.
        let component = unsafe { component::load(self.engine(), &self.linker, &path) }?;
        Ok(Function {
            component,
            memory_bytes: possible(load.memory_bytes),
            cpu: load.cpu_ms.map(Duration::from_millis),
            environment: load.environment.clone().into_iter().collect(),
        })
    }

    fn invoked(&self, request: &Request<Incoming>) -> Result<Arc<Function>, Failure> {
        if let Some(only) = &self.only {
            return Ok(only.clone());
        }
        let name = request.headers().get(FUNCTION).and_then(|it| it.to_str().ok());
        let name = name.unwrap_or_default();
        let functions = self.functions.read().unwrap_or_else(PoisonError::into_inner);
        functions
            .get(name)
            .cloned()
            .ok_or_else(|| Failure::new(Kind::Unknown, format!("no function \"{name}\" is loaded")))
    }

    async fn invoke(
        &self,
        function: Arc<Function>,
        mut request: Request<Incoming>,
    ) -> Response<AnswerBody> {
        let timeout = request.headers().get(TIMEOUT_MS).and_then(|it| it.to_str().ok());
        let timeout =
            timeout.and_then(|text| text.parse().ok()).map_or(TIMEOUT, Duration::from_millis);
        strip(request.headers_mut());
        let usage = Arc::new(Usage::new());
        let (sender, receiver) = oneshot::channel();
        let method = request.method().clone();
        let code = run(self.host.clone(), function, request, sender, usage.clone(), timeout);
        Running::new(code, usage).answer(receiver, &method).await
    }
}

fn done(body: Bytes) -> Response<AnswerBody> {
    Response::new(AnswerBody::Whole(Full::new(body)))
}

/// Says why nothing was run.
fn refuse(failure: &Failure) -> Response<AnswerBody> {
    let mut response = done(failure.message.clone().into());
    *response.status_mut() = StatusCode::UNPROCESSABLE_ENTITY;
    let report = Report { failure: Some(failure.clone()), ..Report::default() };
    if let Ok(value) = HeaderValue::from_bytes(&report.into_header()) {
        response.headers_mut().insert(HeaderName::from_static(REPORT), value);
    }
    response
}
