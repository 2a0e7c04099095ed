//! The server that the benchmarks drive: a minimal hyper hello on one thread.
//!
//! `hello_server [PORT]` prints its address and serves until it is ended.

#![expect(clippy::print_stdout, reason = "its output")]

use std::convert::Infallible;

use bytes::Bytes;
use http_body_util::Full;
use hyper::service::service_fn;
use hyper::{Request, Response, body::Incoming};
use hyper_util::rt::TokioIo;
use tokio::net::TcpListener;

async fn hello(_: Request<Incoming>) -> Result<Response<Full<Bytes>>, Infallible> {
    Ok(Response::new(Full::new(Bytes::from_static(b"hello"))))
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> std::io::Result<()> {
    let port = std::env::args().nth(1).map_or(Ok(0), |text| text.parse());
    let port: u16 = port.map_err(std::io::Error::other)?;
    let listener = TcpListener::bind(("127.0.0.1", port)).await?;
    println!("http://{}/", listener.local_addr()?);
    loop {
        let (stream, _) = listener.accept().await?;
        stream.set_nodelay(true)?;
        let connection = hyper::server::conn::http1::Builder::new()
            .serve_connection(TokioIo::new(stream), service_fn(hello));
        // A client that goes away in the middle is the client's business.
        tokio::spawn(async move { connection.await.ok() });
    }
}
