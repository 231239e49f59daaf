//! Connections, protocols, threads and stopping.

use std::net::TcpStream;
use std::num::NonZeroUsize;
use std::thread;
use std::time::Duration;

use app::mock::{Mock, MockSettings, Script};
use bytes::Bytes;
use http_body_util::{BodyExt, Empty};
use hyper::Request;
use hyper::client::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo};

use crate::support::{Client, Fixture, any_port, start};

#[test]
fn serves_http2_with_prior_knowledge() {
    let fixture = Fixture::scripted("200,503,200,reset,200");
    let address = fixture.mock.address();
    let runtime = tokio::runtime::Builder::new_current_thread();
    let runtime = { runtime }.enable_all().build().unwrap();
    runtime.block_on(async {
        let stream = tokio::net::TcpStream::connect(address).await.unwrap();
        let (mut sender, connection) = http2::handshake(TokioExecutor::new(), TokioIo::new(stream))
            .await
            .unwrap();
        tokio::spawn(connection);
        let mut seen = Vec::new();
        for (method, path) in [
            ("GET", "/echo"),
            ("GET", "/"),
            ("HEAD", "/bytes/70000"),
            ("GET", "/"),
            ("GET", "/bytes/70000"),
        ] {
            let request = Request::builder().method(method);
            let request = request.uri(format!("http://{address}{path}"));
            let request = request.body(Empty::<Bytes>::new()).unwrap();
            let Ok(response) = sender.send_request(request).await else {
                // A reset ends the stream and not the connection.
                seen.push((0, 0));
                continue;
            };
            let status = response.status().as_u16();
            let body = response.into_body().collect().await.unwrap().to_bytes();
            seen.push((status, body.len()));
        }
        assert_eq!((seen[0].0, seen[1].0), (200, 503));
        assert_eq!(seen[2..], [(200, 0), (0, 0), (200, 70_000)]);
    });
}

#[test]
fn serves_pipelined_requests() {
    let fixture = Fixture::scripted("200,404,200");
    let mut client = fixture.connect();
    client.send(&"GET / HTTP/1.1\r\nhost: mock\r\n\r\n".repeat(3));
    let statuses = [(); 3].map(|()| client.reply(false).unwrap().status);
    assert_eq!(statuses, [200, 404, 200]);
}

#[test]
fn invalid_http_gets_400_and_affects_no_other_connection() {
    let fixture = Fixture::new(MockSettings::default());
    let mut client = fixture.connect();
    client.send("nonsense\r\n\r\n");
    assert_eq!(client.reply_head().unwrap().status, 400);
    assert_eq!(fixture.statuses(1), [200]);
}

#[test]
fn threads_share_one_script_and_one_port() {
    let settings = MockSettings {
        script: Some(Script::parse("200*50,429").unwrap()),
        ..MockSettings::default()
    };
    let threads = NonZeroUsize::new(3).unwrap();
    let mock = Mock::start(settings, any_port(), threads).unwrap();
    let address = mock.address();
    thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(move || {
                for _ in 0..10 {
                    Client::connect(address).get("/");
                }
            });
        }
    });
    let stats = mock.stop(Duration::from_secs(60));
    assert_eq!(
        (stats.received, stats.accepted, stats.refused),
        (80, 50, 30)
    );
    assert_eq!(stats.connections, 80);
}

#[test]
fn starting_at_a_taken_port_fails_with_any_number_of_threads() {
    for threads in [1, 2] {
        let threads = NonZeroUsize::new(threads).unwrap();
        let first = Mock::start(MockSettings::default(), any_port(), threads).unwrap();
        for threads in [1, 2] {
            let threads = NonZeroUsize::new(threads).unwrap();
            let taken = Mock::start(MockSettings::default(), first.address(), threads);
            let error = taken.expect_err("the port is taken");
            assert_eq!(error.kind(), std::io::ErrorKind::AddrInUse);
        }
    }
}

#[test]
fn dropping_a_mock_closes_connections_and_frees_its_port() {
    let mock = start(MockSettings::default());
    let address = mock.address();
    let mut client = Client::connect(address);
    client.get("/");
    drop(mock);
    client.send("GET / HTTP/1.1\r\nhost: mock\r\n\r\n");
    client.reply_head().unwrap_err();
    TcpStream::connect(address).unwrap_err();
    Mock::start(MockSettings::default(), address, NonZeroUsize::MIN).unwrap();
}

#[test]
fn stopping_waits_for_requests_in_flight() {
    let fixture = Fixture::scripted("200@1s");
    let Fixture { mock, clock } = fixture;
    let mut client = Client::connect(mock.address());
    client.send("GET / HTTP/1.1\r\nhost: mock\r\n\r\n");
    while mock.stats().received == 0 {
        thread::yield_now();
    }
    let stopping = thread::spawn(move || mock.stop(Duration::from_secs(60)));
    clock.advance(Duration::from_secs(1));
    assert_eq!(client.reply(false).unwrap().status, 200);
    assert_eq!(stopping.join().unwrap().accepted, 1);
}

#[test]
fn stopping_waits_no_longer_than_the_timeout() {
    let Fixture {
        mock,
        clock: _clock,
    } = Fixture::scripted("silent");
    let mut client = Client::connect(mock.address());
    client.send("GET / HTTP/1.1\r\nhost: mock\r\n\r\n");
    while mock.stats().received == 0 {
        thread::yield_now();
    }
    assert_eq!(mock.stop(Duration::ZERO).failed, 1);
    client.reply_head().unwrap_err();
}
