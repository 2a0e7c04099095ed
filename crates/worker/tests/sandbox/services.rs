//! Services beside functions: reached by those that name them, and by nobody else.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::sync::OnceLock;
use std::thread;

use libtest_mimic::Trial;
use serde_json::json;
use uncia_worker::instance::{Network, Reach, StartError, StartFrom};

use crate::fixture::{Function, Needs, test};

pub(crate) fn tests() -> Vec<Trial> {
    vec![
        test("a_service_is_reached_by_who_names_it", Needs::Sandbox, reached),
        test("no_service_is_reached_by_others", Needs::Sandbox, not_reached),
        test("a_service_is_reached_however_the_instance_starts", Needs::Sandbox, every_start),
        test("no_service_is_named_on_the_hosts_network", Needs::Sandbox, host_network),
        test("connections_to_a_service_are_bounded", Needs::Sandbox, bounded),
    ]
}

/// A server that sends back what it gets.
pub(crate) fn echo() -> SocketAddr {
    static ADDRESS: OnceLock<SocketAddr> = OnceLock::new();
    *ADDRESS.get_or_init(|| {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("an address");
        thread::spawn(move || {
            for stream in listener.incoming() {
                thread::spawn(move || {
                    let mut stream = stream.expect("a connection");
                    let mut buffer = vec![0; 65_536];
                    while let Ok(count @ 1..) = stream.read(&mut buffer) {
                        if stream.write_all(&buffer[..count]).is_err() {
                            break;
                        }
                    }
                });
            }
        });
        address
    })
}

fn reaches(function: Function) -> Function {
    function.with(|spec| spec.reach = Reach::named(&["store"]).expect("a service"))
}

/// Sends so many bytes, and says whether they came back, or how that failed.
const TRY: &str = "
    import os, socket, threading
    def handler(event, context):
        try:
            with socket.create_connection(('127.0.0.1', 9011), 10) as link:
                sent = os.urandom(event['bytes'])
                def send():
                    link.sendall(sent)
                    link.shutdown(socket.SHUT_WR)
                thread = threading.Thread(target=send)
                thread.start()
                pieces = []
                while piece := link.recv(65536):
                    pieces.append(piece)
                thread.join()
            result = b''.join(pieces) == sent
        except OSError as error:
            result = type(error).__name__
        return [result, os.environ.get('AWS_ENDPOINT_URL_S3'), os.environ['AWS_ACCESS_KEY_ID']]
    ";

async fn reached() {
    let answer = reaches(Function::python(TRY)).once("{\"bytes\": 5000000}").await;
    assert_eq!(answer, json!([true, "http://127.0.0.1:9011", "key"]));
}

async fn not_reached() {
    for start_from in [StartFrom::Fresh, StartFrom::Prepared, StartFrom::Zygote, StartFrom::Pool] {
        for network in [Network::None, Network::Platform] {
            let function = Function::python(TRY).with(|spec| {
                spec.network = network;
                spec.start_from = start_from;
            });
            // The second may be of what was made ahead.
            for _ in 0..2 {
                let answer = function.once("{\"bytes\": 5}").await;
                assert_eq!(answer, json!(["ConnectionRefusedError", null, "uncia"]));
            }
        }
    }
}

async fn every_start() {
    for start_from in [StartFrom::Prepared, StartFrom::Zygote, StartFrom::Pool] {
        let function = reaches(Function::python(TRY)).with(|spec| {
            spec.start_from = start_from;
            spec.network = Network::Platform;
        });
        for _ in 0..2 {
            let answer = function.once("{\"bytes\": 70000}").await;
            assert_eq!(answer, json!([true, "http://127.0.0.1:9011", "key"]), "{start_from:?}");
        }
    }
}

async fn host_network() {
    let function = reaches(Function::python(TRY)).with(|spec| spec.network = Network::Host);
    match function.try_start().await.result {
        Err(StartError::Sandbox(message)) => assert!(message.contains("`reach`"), "{message}"),
        other => panic!("{:?}", other.err()),
    }
}

async fn bounded() {
    let function = reaches(Function::python(
        "
        import socket
        def handler(event, context):
            links = []
            for _ in range(80):
                link = socket.create_connection(('127.0.0.1', 9011), 10)
                link.sendall(b'x')
                links.append(link)
            answers = []
            for link in links:
                try:
                    answers.append(link.recv(1) == b'x')
                except ConnectionResetError:
                    answers.append(False)
            return sum(answers)
        ",
    ));
    assert_eq!(function.once("{}").await, json!(64));
}
