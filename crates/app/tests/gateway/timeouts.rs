//! Timeouts of a pool in place of those of `[http]`.

use std::io::ErrorKind;
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use socket2::{Domain, Socket, Type};

use crate::support::{Fixture, OPEN, Raw, free, mock, pause, pool};

/// Two pools at one upstream; `slow` has its own timeouts.
fn two_pools(url: &str, own: &str) -> Fixture {
    Fixture::new(&format!(
        "{OPEN}[pool.usual]\nendpoints = [{{ name = \"a\", url = \"{url}\" }}]\n\
         [pool.own]\nendpoints = [{{ name = \"a\", url = \"{url}\" }}]\n{own}"
    ))
}

#[test]
fn a_pool_has_its_own_first_byte_timeout() {
    // A POST is not sent again after a timeout.
    let upstream = Raw::start(|_, mut client| {
        while client.request().is_some() {
            pause(300);
            client.send("HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok");
        }
    });
    let gateway = two_pools(&upstream.url(), "first_byte_timeout = \"100ms\"\n");
    let late = gateway.connect().post("/own/x", &[], "x");
    late.is_own(502, "unreachable");
    assert_eq!(gateway.connect().post("/usual/x", &[], "x").status, 200);
    let configuration = gateway.state.configuration();
    let own = configuration.exchange_of("own").timeouts();
    let usual = configuration.exchange_of("usual").timeouts();
    assert_eq!(own.first_byte, Duration::from_millis(100));
    assert_eq!((own.connect, own.idle), (usual.connect, usual.idle));
}

#[test]
fn a_pool_has_its_own_idle_timeout() {
    // A body that stops in its middle.
    let upstream = Raw::start(|_, mut client| {
        if client.request().is_some() {
            client.send("HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\nok");
            client.rest();
        }
    });
    let gateway = two_pools(&upstream.url(), "idle_timeout = \"100ms\"\n");
    let mut client = gateway.connect();
    client.send("GET /own/x HTTP/1.1\r\nhost: localhost\r\n\r\n");
    assert_eq!(client.head().unwrap().status, 200);
    assert_eq!(client.rest(), b"ok");
}

#[test]
fn an_unused_connection_lives_as_long_as_its_pool_says() {
    let upstream = Raw::start(|_, mut client| {
        while client.request().is_some() {
            client.send("HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok");
        }
    });
    let gateway = two_pools(&upstream.url(), "idle_timeout = \"50ms\"\n");
    // One connection of a client stays with one worker.
    let mut client = gateway.connect();
    for path in ["/own/x", "/usual/x"] {
        for _ in 0..2 {
            assert_eq!(client.get(path).status, 200);
            pause(100);
        }
        // The second request found it too old in the one pool, and used it in the other.
        assert_eq!(upstream.connections(), 2, "{path}");
    }
}

#[test]
fn a_pool_has_its_own_connect_timeout() {
    let gateway = two_pools("http://127.0.0.1:9", "connect_timeout = \"70ms\"\n");
    let configuration = gateway.state.configuration();
    let connect = |pool| configuration.exchange_of(pool).timeouts().connect;
    assert_eq!(connect("own"), Duration::from_millis(70));
    assert_eq!(connect("usual"), Duration::from_secs(5));
}

/// A port that accepts no further connection: as many as it keeps are waiting to be accepted.
fn full_port() -> (SocketAddr, Socket, Vec<TcpStream>) {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    socket.bind(&free().into()).unwrap();
    socket.listen(0).unwrap();
    let address = socket.local_addr().unwrap().as_socket().unwrap();
    let mut waiting = Vec::new();
    loop {
        match TcpStream::connect_timeout(&address, Duration::from_millis(200)) {
            Ok(stream) => waiting.push(stream),
            Err(error) if error.kind() == ErrorKind::TimedOut => break,
            Err(error) => panic!("{error}"),
        }
        assert!(waiting.len() < 100, "it accepts any number");
    }
    (address, socket, waiting)
}

#[test]
fn a_connect_timeout_that_runs_out_is_said_and_sent_again() {
    let (address, _listening, _waiting) = full_port();
    let own = "connect_timeout = \"100ms\"\n[http]\nconnect_timeout = \"250ms\"\n";
    let gateway = two_pools(&format!("http://{address}"), own);
    for (path, timeout) in [("/own/x", 100), ("/usual/x", 250)] {
        let began = Instant::now();
        // Nothing was written, so a POST is sent again, too.
        let reply = gateway.connect().post(path, &[], "x");
        let elapsed = began.elapsed();
        reply.is_own(502, "unreachable");
        let text = reply.text();
        assert!(
            text.contains("no connection was established in time"),
            "{text}"
        );
        assert_eq!(reply.attempts(), 4);
        assert!(elapsed >= 4 * Duration::from_millis(timeout), "{elapsed:?}");
    }
    let metrics = gateway.state.core().metrics().render();
    for key in ["own/a", "usual/a"] {
        let counted = format!("tidegate_attempts_total{{key=\"{key}\",verdict=\"unreachable\"}} 4");
        assert!(metrics.contains(&counted), "{metrics}");
    }
}

#[test]
fn a_connect_timeout_opens_the_breaker_and_moves_to_another_endpoint() {
    let (address, _listening, _waiting) = full_port();
    let mock = mock();
    let settings = "connect_timeout = \"100ms\"\nbalance = \"first\"\n";
    let pool = pool(&[("full", &format!("http://{address}")), ("b", &mock.url())]);
    let gateway = Fixture::new(&format!("{OPEN}{pool}{settings}"));
    for _ in 0..6 {
        assert_eq!(gateway.connect().post("/api/echo", &[], "x").status, 200);
    }
    let logged = gateway.logged();
    assert!(logged.contains("\"breaker_opened\""), "{logged}");
}
