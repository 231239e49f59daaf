//! A server that answers every request as a test says, on a thread per connection.

use std::io::{self, BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;

/// Starts it on a free port. `answer` is given a path and returns type and body of the response, or
/// nothing for a 404.
pub(crate) fn start(
    answer: impl Fn(&str) -> Option<(&'static str, String)> + Send + Sync + 'static,
) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let answer = Arc::new(answer);
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let answer = Arc::clone(&answer);
            // A client that goes away while it is answered is no error of the test.
            std::thread::spawn(move || _ = serve(&stream.unwrap(), &*answer));
        }
    });
    address
}

fn serve(
    mut stream: &TcpStream,
    answer: &dyn Fn(&str) -> Option<(&'static str, String)>,
) -> io::Result<()> {
    let mut requests = BufReader::new(stream);
    let (mut request, mut header) = (String::new(), String::new());
    loop {
        request.clear();
        if requests.read_line(&mut request)? == 0 {
            return Ok(());
        }
        while requests.read_line(&mut header)? > 2 {
            header.clear();
        }
        let path = request.split(' ').nth(1).unwrap_or_default();
        let (status, kind, body) = match answer(path) {
            Some((kind, body)) => ("200 OK", kind, body),
            None => ("404 Not Found", "text/plain", String::new()),
        };
        let length = body.len();
        let response = format!(
            "HTTP/1.1 {status}\r\ncontent-type: {kind}\r\ncontent-length: {length}\r\n\r\n{body}"
        );
        stream.write_all(response.as_bytes())?;
    }
}
