//! Connections, protocols, threads, and how it all ends.

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

use crate::support::{Client, Fixture, free, start};

#[test]
fn http2_is_spoken_to_who_begins_with_it() {
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
            let Ok(answer) = sender.send_request(request).await else {
                seen.push((0, 0));
                // What stands for a reset ends one stream and not the connection.
                continue;
            };
            let status = answer.status().as_u16();
            let body = answer.into_body().collect().await.unwrap().to_bytes();
            seen.push((status, body.len()));
        }
        assert_eq!((seen[0].0, seen[1].0), (200, 503));
        assert_eq!(seen[2..], [(200, 0), (0, 0), (200, 70_000)]);
    });
}

#[test]
fn requests_may_follow_each_other_without_waiting() {
    let fixture = Fixture::scripted("200,404,200");
    let mut client = fixture.connect();
    client.send(&"GET / HTTP/1.1\r\nhost: mock\r\n\r\n".repeat(3));
    let statuses = [(); 3].map(|()| client.reply(false).unwrap().status);
    assert_eq!(statuses, [200, 404, 200]);
}

#[test]
fn what_is_no_http_does_no_harm() {
    let fixture = Fixture::new(MockSettings::default());
    let mut client = fixture.connect();
    client.send("nonsense\r\n\r\n");
    assert_eq!(client.reply_head().unwrap().status, 400);
    assert_eq!(fixture.statuses(1), [200]);
}

#[test]
fn several_threads_share_one_limit_and_one_port() {
    let settings = MockSettings {
        script: Some(Script::parse("200*50,429").unwrap()),
        ..MockSettings::default()
    };
    let threads = NonZeroUsize::new(3).unwrap();
    let mock = Mock::start(settings, free(), threads).unwrap();
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
fn a_port_that_is_taken_is_an_error_with_any_number_of_threads() {
    for threads in [1, 2] {
        let threads = NonZeroUsize::new(threads).unwrap();
        let first = Mock::start(MockSettings::default(), free(), threads).unwrap();
        for threads in [1, 2] {
            let threads = NonZeroUsize::new(threads).unwrap();
            let taken = Mock::start(MockSettings::default(), first.address(), threads);
            let error = taken.expect_err("the port is taken");
            assert_eq!(error.kind(), std::io::ErrorKind::AddrInUse);
        }
    }
}

#[test]
fn a_mock_that_is_dropped_is_gone() {
    let mock = start(MockSettings::default());
    let address = mock.address();
    let mut client = Client::connect(address);
    client.get("/");
    drop(mock);
    client.send("GET / HTTP/1.1\r\nhost: mock\r\n\r\n");
    client.reply_head().unwrap_err();
    TcpStream::connect(address).unwrap_err();
    // The address is free for the next.
    Mock::start(MockSettings::default(), address, NonZeroUsize::MIN).unwrap();
}

#[test]
fn stopping_lets_what_is_under_way_end() {
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
fn stopping_does_not_wait_for_ever() {
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
