//! What a server that is ended waits for, and for how long.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::thread;
use std::time::{Duration, Instant};

use app::mock::{Mock, MockSettings};

use crate::support::{Home, LONG, wait_for};

/// How a server ended.
struct End {
    code: Option<i32>,
    took: Duration,
    /// What its client got.
    received: Vec<u8>,
}

/// Ends a server, which has a second for what is in flight, when `is_due`. A client has sent `request`
/// to it before.
fn end_with(request: &str, is_due: impl Fn(&Mock) -> bool) -> End {
    let listen = "127.0.0.1:0".parse().unwrap();
    let mock = Mock::start(MockSettings::default(), listen, 1.try_into().unwrap()).unwrap();
    let home = Home::new(&format!(
        "[server]\ndrain = \"1s\"\n[network]\nallow = [\"127.0.0.1/32\"]\n\
         [pool.api]\nendpoints = [{{ name = \"a\", url = \"http://{}\" }}]\n",
        mock.address()
    ));
    let server = home.start();
    let mut client = TcpStream::connect(&server.listen).unwrap();
    client.set_read_timeout(Some(LONG)).unwrap();
    client.write_all(request.as_bytes()).unwrap();
    wait_for("request", || is_due(&mock).then_some(()));
    let reader = thread::spawn(move || {
        let mut received = Vec::new();
        // Cut off, it ends with a reset.
        _ = client.take(1 << 30).read_to_end(&mut received);
        received
    });
    let began = Instant::now();
    let code = server.stop().code();
    End {
        code,
        took: began.elapsed(),
        received: reader.join().unwrap(),
    }
}

/// Far from the drain of a second, and below half a minute, which nothing here may wait for.
const SOON: Duration = Duration::from_secs(20);

/// The exit code of a server that has cut off what was in flight.
const CUT_OFF: Option<i32> = Some(130);

#[test]
fn an_endless_stream_is_cut_off_after_the_drain() {
    let request = "GET /api/slow?first=0s&n=1000&every=100ms HTTP/1.1\r\nhost: localhost\r\n\r\n";
    let end = end_with(request, |mock| mock.stats().in_flight == 1);
    assert_eq!(end.code, CUT_OFF);
    assert!(end.took >= Duration::from_secs(1), "{:?}", end.took);
    assert!(end.took < SOON, "{:?}", end.took);
}

#[test]
fn half_a_request_does_not_delay_the_end() {
    let head = "GET /api/echo HTTP/1.1\r\nhost: local";
    let end = end_with(head, |_| true);
    assert_eq!(end.code, Some(0));
    assert!(end.took < SOON, "{:?}", end.took);
    let body = "POST /api/echo HTTP/1.1\r\nhost: localhost\r\ncontent-length: 1000\r\n\r\nhalf";
    let end = end_with(body, |_| true);
    assert!(end.took < SOON, "{:?}", end.took);
}

#[test]
fn a_request_in_flight_is_finished() {
    let request = "GET /api/slow?first=300ms HTTP/1.1\r\nhost: localhost\r\n\r\n";
    let end = end_with(request, |mock| mock.stats().in_flight == 1);
    assert_eq!(end.code, Some(0));
    let text = String::from_utf8_lossy(&end.received);
    assert!(text.starts_with("HTTP/1.1 200 "), "{text}");
}
