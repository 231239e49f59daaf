//! Timeouts of a pool in place of those of `[http]`.

use std::time::Duration;

use crate::support::{Fixture, OPEN, Raw, pause};

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
