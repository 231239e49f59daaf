//! Input that means harm: each is refused as documented or cut off, nothing of it reaches the
//! upstream under another name, and other clients are served as before.

use std::time::Duration;

use crate::support::{
    Fixture, OPEN, in_child_with_descriptors, in_child_with_soft_descriptors, mock, pause, pool,
    request,
};

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
fn refuses_two_content_lengths() {
    refused(&[
        b"POST /api/x HTTP/1.1\r\nhost: localhost\r\ncontent-length: 5\r\ncontent-length: 6\r\n\r\nhello",
        b"POST /api/x HTTP/1.1\r\nhost: localhost\r\ncontent-length: 5, 6\r\n\r\nhello",
        b"POST /api/x HTTP/1.1\r\nhost: localhost\r\ncontent-length: 0\r\ncontent-length: 44\r\n\r\n\
          GET /api/smuggled HTTP/1.1\r\nhost: localhost\r\n\r\n",
    ]);
}

#[test]
fn refuses_unreadable_content_lengths() {
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
fn refuses_a_body_that_stalls_before_a_huge_length() {
    let mock = mock();
    let gateway = Fixture::with(&mock.url(), "[http]\nidle_timeout = \"300ms\"\n");
    let mut client = gateway.connect();
    client.send("POST /api/echo HTTP/1.1\r\nhost: localhost\r\ncontent-length: 9223372036854775807\r\n\r\nhi");
    client.reply(false).unwrap().is_own(408, "body_incomplete");
    gateway.works();
}

#[test]
fn content_length_with_chunked_smuggles_nothing() {
    let mock = mock();
    let gateway = Fixture::before(&mock.url());
    for bytes in [
        // A server that reads by the length would take the rest for a request.
        &b"POST /api/echo HTTP/1.1\r\nhost: localhost\r\ncontent-length: 5\r\ntransfer-encoding: chunked\r\n\r\n\
           2f\r\nGET /api/smuggled HTTP/1.1\r\nhost: localhost\r\n\r\n\r\n0\r\n\r\n"[..],
        // A server that reads by chunks would.
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
fn refuses_unknown_transfer_encodings() {
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
fn refuses_malformed_heads() {
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
fn malformed_chunks_smuggle_nothing() {
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
fn accepts_chunk_extensions() {
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
fn refuses_far_too_long_heads() {
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
fn refuses_what_is_not_http() {
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
fn answers_pipelined_requests_in_order() {
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
fn answers_or_closes_a_half_closed_connection() {
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
fn serves_requests_beside_many_idle_connections() {
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

/// Sends these bytes and checks that the only response is a documented one, and the last.
fn refused_with(gateway: &Fixture, bytes: &[u8], status: u16, reason: &str) {
    let mut client = gateway.connect();
    client.send_bytes(bytes);
    let shown = String::from_utf8_lossy(&bytes[..bytes.len().min(200)]).into_owned();
    let reply = client.reply(false);
    let reply = reply.unwrap_or_else(|error| panic!("{shown:?}: {error}"));
    assert_eq!(reply.status, status, "{shown:?}");
    reply.is_own(status, reason);
    assert_eq!(reply.header("connection"), Some("close"), "{shown:?}");
    assert!(client.rest().is_empty(), "{shown:?}");
}

#[test]
fn refuses_conflicting_framing_with_a_problem_and_closes() {
    let mock = mock();
    let gateway = Fixture::before(&mock.url());
    for bytes in [
        &b"POST /api/x HTTP/1.1\r\nhost: localhost\r\ncontent-length: 5\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n"[..],
        b"POST /api/x HTTP/1.1\r\nhost: localhost\r\nTransfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n0\r\n\r\n",
        b"POST /api/x HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding:\tchunked\r\ncontent-length:5\r\n\r\n0\r\n\r\n",
        b"POST /api/x HTTP/1.1\r\nhost: localhost\r\ncontent-length: 5\r\ncontent-length: 6\r\n\r\nhello",
        b"POST /api/x HTTP/1.1\r\nhost: localhost\r\ncontent-length: 5, 6\r\n\r\nhello",
        b"POST /api/x HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: gzip\r\n\r\n",
        b"POST /api/x HTTP/1.0\r\nhost: localhost\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n",
        b"POST /api/x HTTP/1.1\r\nhost: localhost\r\ncontent-length: 5\r\ncontent-length: 5\r\n\r\nhello",
        b"POST /api/x HTTP/1.1\r\nhost: localhost\r\ncontent-length: 5, 5\r\n\r\nhello",
        b"POST /api/x HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
        b"POST /api/x HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: chunked\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n",
        b"POST /api/x HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: identity\r\n\r\n",
        b"GET /api/x HTTP/1.1\r\n\r\n",
        b"GET http://localhost/api/x HTTP/1.1\r\n\r\n",
        b"GET /api/x HTTP/1.1\r\nhost: localhost\r\nhost: localhost\r\n\r\n",
    ] {
        refused_with(&gateway, bytes, 400, "bad_request");
    }
    assert_eq!(mock.stats().received, 0);
}

#[test]
fn refuses_a_malformed_body_with_a_problem_and_closes() {
    let mock = mock();
    let gateway = Fixture::before(&mock.url());
    for chunks in [
        "no size\r\n",
        "fffffffffffffffff\r\n",
        "-1\r\n",
        "1\r\nab\r\n",
        "1;\n",
    ] {
        let head = request("POST", "/api/x", &["transfer-encoding: chunked"], "");
        let text = format!("{head}2\r\nhi\r\n{chunks}");
        refused_with(&gateway, text.as_bytes(), 400, "bad_request");
    }
    gateway.works();
}

#[test]
fn finds_conflicting_framing_behind_other_requests() {
    let mock = mock();
    let gateway = Fixture::before(&mock.url());
    let conflict = "POST /api/x HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: chunked\r\ncontent-length: 5\r\n\r\n0\r\n\r\n";
    for first in [
        request("GET", "/api/echo", &[], ""),
        request(
            "POST",
            "/api/echo",
            &[],
            "a body\r\ncontent-length: 7\r\n\r\n",
        ),
        request("POST", "/api/echo", &["transfer-encoding: chunked"], "")
            + "5;x=y\r\nhello\r\n6\r\n world\r\n0\r\nx-sum: 1\r\n\r\n",
    ] {
        // In one piece, and byte by byte.
        for size in [10_000, 1] {
            let mut client = gateway.connect();
            let text = format!("{first}{first}{conflict}");
            for piece in text.as_bytes().chunks(size) {
                client.send_bytes(piece);
            }
            for _ in 0..2 {
                assert_eq!(client.reply(false).unwrap().status, 200, "{first}");
            }
            client.reply(false).unwrap().is_own(400, "bad_request");
            assert!(client.rest().is_empty());
        }
    }
    assert!(mock.log().iter().all(|entry| &*entry.path == "/echo"));
}

#[test]
fn finds_conflicting_framing_behind_long_lines_in_pieces() {
    let mock = mock();
    let gateway = Fixture::before(&mock.url());
    let zeros = "0".repeat(300);
    let blanks = " ".repeat(300);
    let length = "POST /api/echo HTTP/1.1\r\nhost: localhost\r\ncontent-length:";
    let chunked =
        "POST /api/echo HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: chunked\r\n\r\n";
    let evil = "POST /api/evil HTTP/1.1\r\nhost: localhost\r\ncontent-length: 3\r\n\
                transfer-encoding: chunked\r\n\r\n0\r\n\r\n";
    for (start, end) in [
        (format!("{length}{zeros}"), "5\r\n\r\nhello"),
        (format!("{length}{blanks}"), "5\r\n\r\nhello"),
        (format!("{chunked}{zeros}"), "5\r\nhello\r\n0\r\n\r\n"),
    ] {
        let mut client = gateway.connect();
        client.send(&start);
        pause(100);
        client.send(end);
        pause(100);
        client.send(evil);
        let mut last = client.reply(false).unwrap();
        while let Ok(reply) = client.reply(false) {
            last = reply;
        }
        assert_eq!(last.status, 400, "{start:?} {last:?}");
    }
    let log = mock.log();
    let evil = log.iter().filter(|entry| entry.path.contains("evil"));
    assert_eq!(evil.count(), 0);
}

#[test]
fn refuses_too_many_headers_and_garbage_with_a_problem_and_closes() {
    let mock = mock();
    let gateway = Fixture::before(&mock.url());
    let many = request("GET", "/api/x", &["x-many: 1"; 300], "");
    refused_with(&gateway, many.as_bytes(), 431, "headers_too_large");
    let path = request("GET", &format!("/api/{}", "a".repeat(66_000)), &[], "");
    refused_with(&gateway, path.as_bytes(), 431, "headers_too_large");
    let long = request(
        "GET",
        "/api/x",
        &[&format!("x: {}", "a".repeat(600_000))],
        "",
    );
    refused_with(&gateway, long.as_bytes(), 431, "headers_too_large");
    for garbage in [
        &b"SSH-2.0-OpenSSH_9.6\r\nmore and more of it, for longer than a preface\r\n"[..],
        b"\x16\x03\x01\x00\xf8\x01\x00\x00\xf4\x03\x03 a client of TLS sends a hello like this",
        b"GET /api/x HTTP/9.9\r\nhost: localhost\r\n\r\n",
        b"GET /api/x HTTP/1.1\r\nhost: localhost\r\nno colon\r\n\r\n",
    ] {
        refused_with(&gateway, garbage, 400, "bad_request");
    }
    // Behind a good request on the same connection, too.
    let mut client = gateway.connect();
    client.send(&(request("GET", "/api/echo", &[], "") + "garbage and more garbage\r\n\r\n"));
    assert_eq!(client.reply(false).unwrap().status, 200);
    client.reply(false).unwrap().is_own(400, "bad_request");
    assert!(client.rest().is_empty());
    let metrics = gateway.state.core().metrics().render();
    assert!(metrics.contains("outcome=\"bad_request\"} 5"), "{metrics}");
}

#[test]
fn refuses_a_path_that_is_too_long_behind_the_endpoints_own() {
    let mock = mock();
    let url = format!("{}/v1/{}", mock.url(), "b".repeat(1000));
    let gateway = Fixture::with(&url, "");
    let longest = 65_534 - "/v1/".len() - 1000;
    let path = |length: usize| format!("/api/{}", "a".repeat(length - 1));
    let reply = gateway.get(&path(longest + 1));
    reply.is_own(431, "headers_too_large");
    assert_eq!((reply.attempts(), mock.stats().received), (0, 0));
    assert_ne!(
        gateway.get(&path(longest)).reason(),
        Some("headers_too_large")
    );
    let log = mock.log();
    assert!(
        log.iter().all(|entry| entry.path.starts_with("/v1/b")),
        "{log:?}"
    );
}

#[test]
fn refuses_with_no_descriptors_when_the_process_has_none_left() {
    in_child_with_descriptors(
        "hostile::refuses_with_no_descriptors_when_the_process_has_none_left",
        128,
        || {
            let mock = mock();
            let gateway = Fixture::new(&format!(
                "{OPEN}consecutive_failures = 1\n{}",
                pool(&[("a", &mock.url())])
            ));
            let mut client = gateway.connect();
            assert_eq!(client.get("/nope").status, 404);
            let mut files = Vec::new();
            while let Ok(file) = std::fs::File::open("/dev/null") {
                files.push(file);
            }
            for _ in 0..3 {
                let reply = client.get("/api/echo");
                reply.is_own(503, "no_descriptors");
                assert!(reply.header("retry-after").is_some());
            }
            drop(files);
            // It says nothing about the upstream: the breaker is closed.
            assert_eq!(client.get("/api/echo").status, 200);
            let logged = gateway.logged();
            assert_eq!(
                logged.matches("\"event\":\"no_descriptors\"").count(),
                1,
                "{logged}"
            );
        },
    );
}

#[test]
fn keeps_descriptors_in_reserve_when_clients_open_ever_more_connections() {
    in_child_with_descriptors(
        "hostile::keeps_descriptors_in_reserve_when_clients_open_ever_more_connections",
        512,
        || {
            let mock = mock();
            let gateway = Fixture::before(&mock.url());
            let mut client = gateway.connect();
            assert_eq!(client.get("/nope").status, 404);
            // Half of them are the clients' own, who live in the same process here.
            let idle: Vec<_> = (0..235).map(|_| gateway.connect()).collect();
            pause(200);
            assert_eq!(client.get("/api/echo").status, 200);
            let files: Vec<_> = (0..20).map(|_| std::fs::File::open("/dev/null")).collect();
            assert!(files.iter().all(Result::is_ok), "{files:?}");
            drop(idle);
            gateway.works();
        },
    );
}

#[test]
fn raises_the_limit_of_descriptors_to_what_the_system_allows() {
    in_child_with_soft_descriptors(
        "hostile::raises_the_limit_of_descriptors_to_what_the_system_allows",
        64,
        || {
            app::descriptors::raise_limit();
            let files: Vec<_> = (0..100).map(|_| std::fs::File::open("/dev/null")).collect();
            assert!(files.iter().all(Result::is_ok), "{files:?}");
        },
    );
}
