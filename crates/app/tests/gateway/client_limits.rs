//! What each client may send: `client.NAME.limits`.

use crate::forward::LOCAL;
use crate::support::{Fixture, OPEN, Reply, mock, pool};

/// `a` may send twice an hour, `b` as much as it likes.
const CLIENTS: &str = r#"
[client.a]
token = "env:TOKEN_OF_A"
limits = ["2/1h"]
[client.b]
token = "env:TOKEN_OF_B"
"#;
const A: &str = "tidegate-token: value-of-TOKEN_OF_A";
const B: &str = "tidegate-token: value-of-TOKEN_OF_B";

fn is_limited(reply: &Reply) {
    reply.is_own(429, "client_limit");
    let wait: u64 = reply.header("retry-after").unwrap().parse().unwrap();
    assert!((3500..=3600).contains(&wait), "{wait}");
    assert_eq!(reply.attempts(), 0);
}

#[test]
fn a_client_past_its_limit_is_refused_and_others_are_not() {
    let mock = mock();
    let pools = pool(&[("a", &mock.url())]);
    let gateway = Fixture::new(&format!("{OPEN}{pools}{CLIENTS}"));
    let mut client = gateway.connect();
    for _ in 0..2 {
        assert_eq!(client.get_with("/api/echo", &[A]).status, 200);
        // What is refused for another reason does not count.
        client.get_with("/nope", &[A]).is_own(404, "no_route");
        client
            .get_with("/api/x", &[A, "tidegate-max-wait: x"])
            .is_own(400, "bad_wait");
    }
    is_limited(&client.get_with("/api/echo", &[A]));
    is_limited(&client.get_with("/api/echo", &[A, "prefer: respond-async"]));
    for _ in 0..5 {
        assert_eq!(client.get_with("/api/echo", &[B]).status, 200);
    }
    client.get("/api/echo").is_own(401, "no_token");
    assert_eq!(mock.stats().received, 7);
    let metrics = gateway.state.core().metrics().render();
    assert!(metrics.contains("outcome=\"client_limit\"} 2"), "{metrics}");
}

#[test]
fn requests_of_forward_mode_and_tunnels_count_too() {
    let mock = mock();
    let gateway = Fixture::new(&format!("{OPEN}{LOCAL}{CLIENTS}"));
    let url = format!("{}/echo", mock.url());
    let target = mock.url().trim_start_matches("http://").to_owned();
    assert_eq!(gateway.connect().get_with(&url, &[A]).status, 200);
    let connect = format!("CONNECT {target} HTTP/1.1\r\nhost: {target}\r\n{A}\r\n\r\n");
    let mut client = gateway.connect();
    client.send(&connect);
    assert_eq!(client.head().unwrap().status, 200);
    is_limited(&gateway.connect().get_with(&url, &[A]));
    let mut client = gateway.connect();
    client.send(&connect);
    is_limited(&client.reply(false).unwrap());
}

#[test]
fn a_reload_does_not_renew_the_allowance() {
    let mock = mock();
    let pools = pool(&[("a", &mock.url())]);
    let settings = format!("{OPEN}{pools}{CLIENTS}");
    let gateway = Fixture::new(&settings);
    let ask = || gateway.connect().get_with("/api/echo", &[A]);
    assert_eq!(ask().status, 200);
    assert_eq!(ask().status, 200);
    gateway.reload(&settings);
    is_limited(&ask());
    gateway.reload(&settings.replace("2/1h", "3/1h"));
    assert_eq!(ask().status, 200);
    is_limited(&ask());
    gateway.reload(&settings.replace("2/1h", "9/1s"));
    assert_eq!(ask().status, 200);
}
