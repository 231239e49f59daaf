//! A server that costs as little as possible, so that the clients are what is measured: one thread,
//! connections kept alive, responses made in advance.
//!
//! - `/page/N`: an HTML page of about 1 KiB.
//! - `/hub/K`: an HTML page with 10,000 links, to `/page/N` for N from 10,000·K on.
//! - `/count`: how many pages were requested since the last such request, and how many different ones.
//! - Anything else, as `/robots.txt`: 404.
//!
//! It prints its port, and ends at the end of its standard input.

use std::cell::RefCell;
use std::collections::HashSet;
use std::error::Error;
use std::net::Ipv4Addr;
use std::rc::Rc;

use memchr::memmem;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::LocalSet;

/// Links of a hub page.
const LINKS: u64 = 10_000;

/// Longer heads end the connection.
const MAX_HEAD: usize = 16 * 1024;

/// Serves on `hosts` addresses, from 127.0.0.1 on.
pub(crate) async fn serve(hosts: u8) -> Result<(), Box<dyn Error>> {
    let first = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
    let port = first.local_addr()?.port();
    let mut listeners = vec![first];
    for host in 2..=hosts {
        listeners.push(TcpListener::bind((Ipv4Addr::new(127, 0, 0, host), port)).await?);
    }
    let site = Rc::new(Site::new());
    let tasks = LocalSet::new();
    for listener in listeners {
        tasks.spawn_local(accept(listener, Rc::clone(&site)));
    }
    tasks
        .run_until(async {
            let mut stdout = tokio::io::stdout();
            stdout.write_all(format!("{port}\n").as_bytes()).await?;
            stdout.flush().await?;
            tokio::io::copy(&mut tokio::io::stdin(), &mut tokio::io::sink()).await?;
            Ok(())
        })
        .await
}

async fn accept(listener: TcpListener, site: Rc<Site>) {
    // An error of `accept` concerns a connection that its client has closed already.
    loop {
        if let Ok((stream, _)) = listener.accept().await {
            // As with any connection that a client closes, an error ends it and nothing else.
            let site = Rc::clone(&site);
            tokio::task::spawn_local(async move { _ = answer(stream, &site).await });
        }
    }
}

async fn answer(mut stream: TcpStream, site: &Site) -> std::io::Result<()> {
    stream.set_nodelay(true)?;
    let mut input = Vec::with_capacity(MAX_HEAD);
    let mut output = Vec::new();
    while input.len() < MAX_HEAD && stream.read_buf(&mut input).await? > 0 {
        while let Some(end) = memmem::find(&input, b"\r\n\r\n") {
            site.respond(&input[..end], &mut output);
            input.drain(..end + 4);
        }
        stream.write_all(&output).await?;
        output.clear();
    }
    Ok(())
}

/// What is served, and what was requested.
struct Site {
    page: Vec<u8>,
    missing: Vec<u8>,
    requested: RefCell<Requested>,
}

#[derive(Default)]
struct Requested {
    pages: u64,
    numbers: HashSet<u64>,
}

impl Site {
    fn new() -> Self {
        let text = "<p>The tide comes in twice a day, and so does this sentence.</p>\n".repeat(14);
        let page = format!(
            "<!doctype html>\n<html><head><title>A page of the benchmark</title></head>\n\
             <body>\n{text}</body></html>\n"
        );
        Self {
            page: response("200 OK", &page),
            missing: response("404 Not Found", ""),
            requested: RefCell::default(),
        }
    }

    fn respond(&self, head: &[u8], output: &mut Vec<u8>) {
        let path = head.split(|byte| *byte == b' ').nth(1).unwrap_or_default();
        let path = std::str::from_utf8(path).unwrap_or_default();
        if let Some(number) = number_after("/page/", path) {
            let mut requested = self.requested.borrow_mut();
            requested.pages += 1;
            requested.numbers.insert(number);
            output.extend_from_slice(&self.page);
        } else if let Some(number) = number_after("/hub/", path) {
            output.extend_from_slice(&response("200 OK", &hub(number)));
        } else if path == "/count" {
            let requested = self.requested.take();
            let count = format!("{} {}\n", requested.pages, requested.numbers.len());
            output.extend_from_slice(&response("200 OK", &count));
        } else {
            output.extend_from_slice(&self.missing);
        }
    }
}

fn number_after(prefix: &str, path: &str) -> Option<u64> {
    path.strip_prefix(prefix)?.parse().ok()
}

fn hub(number: u64) -> String {
    let pages = number * LINKS..(number + 1) * LINKS;
    let links: String = pages
        .map(|page| format!("<a href=\"/page/{page}\">{page}</a>\n"))
        .collect();
    format!("<!doctype html>\n<title>Hub {number}</title>\n{links}")
}

fn response(status: &str, body: &str) -> Vec<u8> {
    let length = body.len();
    format!(
        "HTTP/1.1 {status}\r\ncontent-type: text/html; charset=utf-8\r\n\
         content-length: {length}\r\n\r\n{body}"
    )
    .into_bytes()
}
