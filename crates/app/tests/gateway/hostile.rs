//! Input that means harm: each is refused as documented or cut off, nothing of it reaches the
//! upstream under another name, and whoever behaves is served as before.

use std::time::Duration;

use crate::support::{Fixture, mock, request};

/// What came of sending these bytes: the statuses of all answers, until the connection ended.
fn outcome(gateway: &Fixture, bytes: &[u8]) -> Vec<u16> {
    let mut client = gateway.connect();
    client.send_bytes(bytes);
    client.half_close();
    let answer = client.rest();
    let text = String::from_utf8_lossy(&answer);
    let lines = text.lines();
    let statuses = lines.filter_map(|line| line.strip_prefix("HTTP/1."));
    statuses.map(|line| line[2..5].parse().unwrap()).collect()
}

/// None of these is answered other than with 4xx, and nothing called `smuggled` arrives.
fn refused(cases: &[&[u8]]) {
    let mock = mock();
    let gateway = Fixture::with(&mock.url(), "[http]\nidle_timeout = \"1s\"\n");
    for bytes in cases {
        let shown = String::from_utf8_lossy(&bytes[..bytes.len().min(200)]).into_owned();
        let statuses = outcome(&gateway, bytes);
        let is_refused = |status: &u16| (400..500).contains(status);
        assert!(statuses.iter().all(is_refused), "{shown:?}: {statuses:?}");
        gateway.works();
    }
    let log = mock.log();
    let odd: Vec<_> = log.iter().filter(|entry| &*entry.path != "/echo").collect();
    assert!(odd.is_empty(), "{odd:?}");
}

#[test]
fn two_lengths_are_refused() {
    refused(&[
        b"POST /api/x HTTP/1.1\r\nhost: localhost\r\ncontent-length: 5\r\ncontent-length: 6\r\n\r\nhello",
        b"POST /api/x HTTP/1.1\r\nhost: localhost\r\ncontent-length: 5, 6\r\n\r\nhello",
        b"POST /api/x HTTP/1.1\r\nhost: localhost\r\ncontent-length: 0\r\ncontent-length: 44\r\n\r\n\
          GET /api/smuggled HTTP/1.1\r\nhost: localhost\r\n\r\n",
    ]);
}

#[test]
fn lengths_that_are_no_numbers_are_refused() {
    for length in [
        "-1",
        "+5",
        "0x5",
        "5 5",
        "99999999999999999999999",
        "",
        "5.0",
        "\u{665}",
    ] {
        let text = format!(
            "POST /api/x HTTP/1.1\r\nhost: localhost\r\ncontent-length: {length}\r\n\r\nhello"
        );
        refused(&[text.as_bytes()]);
    }
}

#[test]
fn a_length_that_nobody_can_send_is_not_waited_for() {
    let mock = mock();
    let gateway = Fixture::with(&mock.url(), "[http]\nidle_timeout = \"300ms\"\n");
    let mut client = gateway.connect();
    client.send("POST /api/echo HTTP/1.1\r\nhost: localhost\r\ncontent-length: 9223372036854775807\r\n\r\nhi");
    client.reply(false).unwrap().is_own(408, "body_incomplete");
    gateway.works();
}

#[test]
fn a_length_and_pieces_at_once_smuggle_nothing() {
    let mock = mock();
    let gateway = Fixture::before(&mock.url());
    for bytes in [
        // Who goes by the length would take the rest for a request.
        &b"POST /api/echo HTTP/1.1\r\nhost: localhost\r\ncontent-length: 5\r\ntransfer-encoding: chunked\r\n\r\n\
           2f\r\nGET /api/smuggled HTTP/1.1\r\nhost: localhost\r\n\r\n\r\n0\r\n\r\n"[..],
        // Who goes by the pieces would.
        b"POST /api/echo HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: chunked\r\ncontent-length: 60\r\n\r\n\
          0\r\n\r\nGET /nope/smuggled HTTP/1.1\r\nhost: localhost\r\n\r\n",
        b"POST /api/echo HTTP/1.1\r\nhost: localhost\r\ncontent-length: 5\r\ncontent-length: 5\r\n\r\nhello",
    ] {
        let statuses = outcome(&gateway, bytes);
        assert!(
            statuses.iter().all(|status| [200, 400, 404].contains(status)),
            "{statuses:?}"
        );
        gateway.works();
    }
    assert!(
        mock.log()
            .iter()
            .all(|entry| !entry.path.contains("smuggled"))
    );
}

#[test]
fn odd_encodings_are_refused() {
    for encoding in [
        "gzip",
        "chunked, gzip",
        "identity",
        "xchunked",
        "chunked\r\ntransfer-encoding: gzip",
    ] {
        let text = format!(
            "POST /api/x HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: {encoding}\r\n\r\n\
             0\r\n\r\nGET /api/smuggled HTTP/1.1\r\nhost: localhost\r\n\r\n"
        );
        refused(&[text.as_bytes()]);
    }
    refused(&[b"POST /api/x HTTP/1.0\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n"]);
}

#[test]
fn odd_lines_and_names_are_refused() {
    refused(&[
        b"GET /api/x HTTP/1.1\r\nhost: localhost\r\nx-folded: a\r\n b\r\n\r\n",
        b"GET /api/x HTTP/1.1\r\nhost: localhost\r\nx-nul: a\0b\r\n\r\n",
        b"GET /api/x HTTP/1.1\r\nhost: localhost\r\ncontent-length : 5\r\n\r\nhello",
        b"GET /api/x HTTP/1.1\r\nhost: localhost\r\n: empty\r\n\r\n",
        b"GET /api/x HTTP/1.1\r\nhost: localhost\r\nno colon\r\n\r\n",
        b"GET /api/x HTTP/1.1\r\n host: localhost\r\n\r\n",
        b"GET /api/x HTTP/1.1\r\nhost: localhost\r\nx: a\rb\r\n\r\n",
        b"GET /api/\0x HTTP/1.1\r\nhost: localhost\r\n\r\n",
        b"GET /api/x y HTTP/1.1\r\nhost: localhost\r\n\r\n",
        b"G@T /api/x HTTP/1.1\r\nhost: localhost\r\n\r\n",
        b"GET /api/x HTTP/9.9\r\nhost: localhost\r\n\r\n",
        b"GET /api/x HTTP/1.1x\r\nhost: localhost\r\n\r\n",
        b"GET api/x HTTP/1.1\r\nhost: localhost\r\n\r\n",
        b"GET /api/x\r\n\r\n",
        b"GET /api/x\r\nGET /api/smuggled HTTP/1.1\r\nhost: localhost\r\n\r\n",
    ]);
}

#[test]
fn bare_line_feeds_smuggle_nothing() {
    let mock = mock();
    let gateway = Fixture::before(&mock.url());
    for bytes in [
        &b"GET /api/echo HTTP/1.1\nhost: localhost\n\n"[..],
        b"GET /api/echo HTTP/1.1\r\nhost: localhost\r\nx: a\ncontent-length: 44\r\n\r\n",
        b"POST /api/echo HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: chunked\r\n\r\n\
          0\n\nGET /api/smuggled HTTP/1.1\r\nhost: localhost\r\n\r\n",
    ] {
        let statuses = outcome(&gateway, bytes);
        let is_fine = |status: &u16| *status == 200 || (400..500).contains(status);
        assert!(statuses.iter().all(is_fine), "{statuses:?}");
        gateway.works();
    }
    assert!(mock.log().iter().all(|entry| &*entry.path == "/echo"));
}

#[test]
fn pieces_that_are_none_smuggle_nothing() {
    let mock = mock();
    let gateway = Fixture::with(&mock.url(), "[http]\nidle_timeout = \"1s\"\n");
    let long = format!("5;{}\r\nhello\r\n0\r\n\r\n", "x".repeat(100_000));
    let smuggling = "GET /api/smuggled HTTP/1.1\r\nhost: localhost\r\n\r\n";
    let trailers = format!("0\r\n{}\r\n", "x-many: 1\r\n".repeat(10_000));
    for pieces in [
        "fffffffffffffffff\r\nhello\r\n0\r\n\r\n",
        "ffffffffffffffff\r\nhello\r\n0\r\n\r\n",
        "-5\r\nhello\r\n0\r\n\r\n",
        "0x5\r\nhello\r\n0\r\n\r\n",
        "5 \nhello\r\n0\r\n\r\n",
        "5\r\nhello world\r\n0\r\n\r\n",
        "g\r\nhello\r\n0\r\n\r\n",
        "\r\nhello\r\n0\r\n\r\n",
        "5;\nhello\r\n0\r\n\r\n",
        &long,
        &trailers,
    ] {
        let text = format!(
            "POST /api/echo HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: chunked\r\n\r\n\
             {pieces}{smuggling}"
        );
        let statuses = outcome(&gateway, text.as_bytes());
        let is_fine = |status: &u16| (400..500).contains(status);
        let shown = &pieces[..pieces.len().min(30)];
        assert!(statuses.iter().all(is_fine), "{shown:?}: {statuses:?}");
        gateway.works();
    }
    assert!(mock.log().iter().all(|entry| &*entry.path == "/echo"));
}

#[test]
fn a_remark_beside_a_piece_is_fine() {
    let mock = mock();
    let gateway = Fixture::before(&mock.url());
    let mut client = gateway.connect();
    client.send(&request(
        "POST",
        "/api/echo",
        &["transfer-encoding: chunked"],
        "",
    ));
    client.send("5;a=b;c=\"d\"\r\nhello\r\n0;last\r\n\r\n");
    assert_eq!(client.reply(false).unwrap().json()["body_length"], 5);
}

#[test]
fn what_is_far_too_long_is_cut_off() {
    let mock = mock();
    let gateway = Fixture::before(&mock.url());
    let path = format!(
        "GET /api/{} HTTP/1.1\r\nhost: localhost\r\n\r\n",
        "a".repeat(300_000)
    );
    let name = format!(
        "GET /api/x HTTP/1.1\r\nhost: localhost\r\n{}: 1\r\n\r\n",
        "a".repeat(300_000)
    );
    let many = format!(
        "GET /api/x HTTP/1.1\r\nhost: localhost\r\n{}\r\n",
        "x-many: 1\r\n".repeat(10_000)
    );
    let endless = "a".repeat(2_000_000);
    for text in [path, name, many, endless] {
        let statuses = outcome(&gateway, text.as_bytes());
        let is_fine = |status: &u16| (400..500).contains(status);
        assert!(statuses.iter().all(is_fine), "{statuses:?}");
        gateway.works();
    }
    assert!(mock.log().iter().all(|entry| &*entry.path == "/echo"));
}

#[test]
fn what_is_no_http_is_cut_off() {
    let mut hello = vec![
        0x16, 0x03, 0x01, 0x00, 0xf8, 0x01, 0x00, 0x00, 0xf4, 0x03, 0x03,
    ];
    hello.extend([7; 200]);
    let noise: Vec<u8> = (0..10_000_u32)
        .map(|n| u8::try_from(n.wrapping_mul(2_654_435_761) >> 24).unwrap())
        .collect();
    refused(&[
        &hello,
        &noise,
        b"\r\n\r\n\r\n\r\n",
        b"\0\0\0\0",
        b"SSH-2.0-OpenSSH_9.6\r\n",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\nnonsense and more nonsense",
        b"PRI * HTTP/2.0\r\n\r\nXX\r\n\r\n",
        b"",
    ]);
}

#[test]
fn requests_that_follow_each_other_are_answered_in_order() {
    let mock = mock();
    let gateway = Fixture::before(&mock.url());
    let mut client = gateway.connect();
    let texts: Vec<String> = (0..20)
        .map(|n| {
            // The first ones take the longest.
            let path = format!("/api/slow?first={}ms&n={n}", 40 - 2 * n);
            request("GET", &path, &[], "")
        })
        .collect();
    client.send(&texts.concat());
    for n in 0..20 {
        let reply = client.reply(false).unwrap();
        assert_eq!((reply.status, reply.body.len()), (200, 5 * n));
    }
}

#[test]
fn a_half_closed_connection_is_answered_or_closed() {
    let mock = mock();
    let gateway = Fixture::before(&mock.url());
    for text in [
        request("GET", "/api/echo", &[], ""),
        request("POST", "/api/echo", &[], "hello"),
        request("POST", "/api/echo", &["content-length: 10"], "") + "hello",
        "GET /api/ec".to_owned(),
    ] {
        let statuses = outcome(&gateway, text.as_bytes());
        assert!(statuses.len() <= 1, "{statuses:?}");
        gateway.works();
    }
}

#[test]
fn many_idle_connections_keep_nobody_out() {
    let mock = mock();
    let gateway = Fixture::before(&mock.url());
    let mut idle: Vec<_> = (0..500).map(|_| gateway.connect()).collect();
    for client in &mut idle[..250] {
        client.send("GET /api/echo HTTP/1.1\r\nhost: local");
    }
    for _ in 0..10 {
        gateway.works();
    }
    // Those that go on are served, too.
    for client in &mut idle[..250] {
        client.send("host\r\n\r\n");
    }
    for client in &mut idle[..250] {
        client
            .stream()
            .set_read_timeout(Some(Duration::from_secs(20)))
            .unwrap();
        assert_eq!(client.reply(false).unwrap().status, 200);
    }
}
