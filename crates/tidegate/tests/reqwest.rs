//! Requests of reqwest through their gates, over real sockets.

#![cfg(all(feature = "reqwest-middleware", feature = "tower"))]

use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use http_body_util::Full;
use reqwest::header::{AUTHORIZATION, HeaderValue};
use reqwest::{Body, Client, redirect, retry};
use reqwest_middleware::{ClientBuilder, Middleware, Next};
use tidegate::call::{CallDecision, Trail};
use tidegate::reqwest::{LimiterMiddleware, SendError};
use tidegate::tower::{Decided, LimitLayer, RetryLayer};
use tidegate::{
    BackoffOptions, BackoffSettings, Credential, GateOptions, GateSettings, Limiter, Reason,
    RetryAfterJitter, TerminalReason, Verdict,
};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tower::{ServiceBuilder, ServiceExt};

/// Answers the n-th request, counted from 1, with the raw text that `respond` makes of its head and
/// its body.
async fn serve(
    respond: impl Fn(u32, &str) -> String + Send + Sync + 'static,
) -> io::Result<(SocketAddr, Arc<AtomicU32>)> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    let received = Arc::new(AtomicU32::new(0));
    let count = Arc::clone(&received);
    let respond = Arc::new(respond);
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let (respond, count) = (Arc::clone(&respond), Arc::clone(&count));
            tokio::spawn(async move { answer(stream, &*respond, &count).await });
        }
    });
    Ok((address, received))
}

async fn answer(
    mut stream: TcpStream,
    respond: &(impl Fn(u32, &str) -> String + ?Sized),
    count: &AtomicU32,
) -> io::Result<()> {
    let mut request = Vec::new();
    while !is_whole(&String::from_utf8_lossy(&request)) {
        if stream.read_buf(&mut request).await? == 0 {
            return Ok(());
        }
    }
    let number = count.fetch_add(1, Ordering::SeqCst) + 1;
    let response = respond(number, &String::from_utf8_lossy(&request));
    stream.write_all(response.as_bytes()).await?;
    // A response without an end stays open until the client leaves.
    while stream.read_buf(&mut request).await? > 0 {}
    Ok(())
}

/// Whether a request has its head, and as much of a body as that says.
fn is_whole(request: &str) -> bool {
    let Some((head, body)) = request.split_once("\r\n\r\n") else {
        return false;
    };
    let fields = head.lines().filter_map(|line| line.split_once(": "));
    let length = fields.filter(|(name, _)| *name == "content-length");
    let length = length.filter_map(|(_, value)| value.parse::<usize>().ok());
    body.len() >= length.sum::<usize>()
}

fn response(status: u16, fields: &str, body: &str) -> String {
    let length = body.len();
    format!(
        "HTTP/1.1 {status} -\r\n{fields}content-length: {length}\r\nconnection: close\r\n\r\n{body}"
    )
}

fn client() -> Client {
    let client = Client::builder().redirect(redirect::Policy::none());
    client
        .retry(retry::never())
        .build()
        .expect("a plain client")
}

/// A limiter that does not delay requests.
fn limiter() -> Limiter {
    Limiter::builder().gate(GateSettings::fixed(1000.0)).build()
}

/// Short waits and two attempts.
fn quick() -> BackoffSettings {
    let mut options = BackoffOptions::default();
    for (name, value) in [("base", "1ms"), ("max_attempts", "2")] {
        options.set(name, value).expect("a valid setting");
    }
    options.build().expect("consistent settings")
}

fn sent(trail: &Trail) -> usize {
    let steps = trail.steps().iter();
    steps
        .filter(|step| matches!(step.decision, CallDecision::Settled { .. }))
        .count()
}

#[tokio::test]
async fn response_is_that_of_reqwest_and_the_gate_is_that_of_the_host() {
    let (server, _) = serve(|_, _| response(200, "x-name: value\r\n", "hello"))
        .await
        .unwrap();
    let (client, limiter) = (client(), limiter());
    let url = format!("http://{server}/items?page=2");
    let response = limiter.send(&client, client.get(&url)).await.unwrap();
    assert_eq!(
        (response.status().as_u16(), response.url().as_str()),
        (200, &*url)
    );
    assert_eq!(response.headers()["x-name"], "value");
    assert_eq!(response.content_length(), Some(5));
    assert_eq!(response.remote_addr(), Some(server));
    assert_eq!(sent(response.extensions().get::<Trail>().unwrap()), 1);
    assert_eq!(response.text().await.unwrap(), "hello");
    assert!(limiter.gate(&server.to_string()).is_some());
}

#[tokio::test]
async fn waits_as_the_headers_say_and_sends_again() {
    let requests = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&requests);
    let (server, received) = serve(move |number, request| {
        seen.lock().unwrap().push(request.to_owned());
        match number {
            1 => response(429, "retry-after-ms: 20\r\n", ""),
            _ => response(200, "", "hello"),
        }
    })
    .await
    .unwrap();
    let (client, limiter) = (client(), limiter());
    let request = client
        .post(format!("http://{server}/items?page=2"))
        .header("x-name", "value")
        .body("kept for the resend");
    let response = limiter.send(&client, request).await.unwrap();
    assert_eq!(response.status(), 200);
    let trail = response.extensions().get::<Trail>().unwrap();
    assert!(trail.waited() >= Duration::from_millis(20), "{trail:?}");
    assert_eq!(received.load(Ordering::SeqCst), 2);
    let requests = requests.lock().unwrap();
    assert_eq!(requests[0], requests[1], "resent as it was");
    let starts = requests[1].starts_with("POST /items?page=2 HTTP/1.1\r\nx-name: value\r\n");
    let ends = requests[1].ends_with("\r\n\r\nkept for the resend");
    assert!(starts && ends, "{:?}", requests[1]);
}

#[tokio::test]
async fn body_of_an_error_decides_and_is_still_there() {
    let text = r#"{"error":{"code":"rate_limit_exceeded"}}"#;
    let (server, received) = serve(move |_, _| response(403, "", text)).await.unwrap();
    let (client, limiter) = (client(), limiter());
    let request = client.get(format!("http://{server}/"));
    let response = limiter
        .send(&client, request)
        .backoff(quick())
        .await
        .unwrap();
    assert_eq!(response.status(), 403);
    assert_eq!(response.content_length(), u64::try_from(text.len()).ok());
    assert_eq!(response.text().await.unwrap(), text);
    assert_eq!(received.load(Ordering::SeqCst), 2, "it means: slower");
    let gate = limiter.gate(&server.to_string()).unwrap().gate;
    assert_eq!(gate.in_flight, 0);
}

#[tokio::test]
async fn used_up_quota_is_not_sent_again() {
    let text = r#"{"error":{"code":"insufficient_quota"}}"#;
    let (server, received) = serve(move |_, _| response(429, "", text)).await.unwrap();
    let (client, limiter) = (client(), limiter());
    let request = client.get(format!("http://{server}/"));
    let response = limiter
        .send(&client, request)
        .backoff(quick())
        .await
        .unwrap();
    assert_eq!(response.text().await.unwrap(), text);
    assert_eq!(received.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn long_body_of_an_error_is_returned_whole() {
    let text = "x".repeat(200_000);
    let body = text.clone();
    let (server, _) = serve(move |_, _| response(404, "", &body)).await.unwrap();
    let (client, limiter) = (client(), limiter());
    let request = client.get(format!("http://{server}/"));
    let response = limiter.send(&client, request).await.unwrap();
    assert_eq!(response.text().await.unwrap(), text);
}

#[tokio::test]
async fn unwritten_post_is_sent_again_and_fails_with_the_error_of_the_client() {
    let free = TcpListener::bind("127.0.0.1:0")
        .await
        .unwrap()
        .local_addr()
        .unwrap();
    let (client, limiter) = (client(), limiter());
    let request = client.post(format!("http://{free}/")).body("text");
    let error = limiter
        .send(&client, request)
        .backoff(quick())
        .await
        .unwrap_err();
    assert_eq!(sent(error.trail().unwrap()), 2);
    let message = "the request failed after 2 attempts (exhausted)";
    assert_eq!(error.to_string(), message);
    let SendError::Failed { error, .. } = error else {
        panic!("{error:?}");
    };
    assert!(error.is_connect(), "{error:?}");
}

#[tokio::test]
async fn body_that_is_a_stream_is_sent_once() {
    let (server, received) = serve(|_, _| response(503, "", "busy")).await.unwrap();
    let (client, limiter) = (client(), limiter());
    let stream = Body::wrap(Full::new("streamed".as_bytes()));
    let request = client.put(format!("http://{server}/")).body(stream);
    let response = limiter
        .send(&client, request)
        .backoff(quick())
        .await
        .unwrap();
    assert_eq!(response.status(), 503);
    assert_eq!(received.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn response_counts_as_in_flight_to_the_end_of_its_body() {
    // Five of six bytes: the body has not ended.
    let head = "HTTP/1.1 200 -\r\ncontent-length: 6\r\n\r\nhello";
    let (server, _) = serve(move |_, _| head.to_owned()).await.unwrap();
    let (client, limiter) = (client(), limiter());
    let request = client.get(format!("http://{server}/"));
    let mut response = limiter.send(&client, request).await.unwrap();
    let key = server.to_string();
    let in_flight = || limiter.gate(&key).unwrap().gate.in_flight;
    assert_eq!(
        response.chunk().await.unwrap().as_deref(),
        Some(&b"hello"[..])
    );
    assert_eq!(in_flight(), 1);
    drop(response);
    assert_eq!(in_flight(), 0);
}

#[tokio::test]
async fn next_request_waits_for_the_end_of_the_body_at_max_in_flight() {
    let (server, _) = serve(|_, _| response(200, "", "hello")).await.unwrap();
    let settings = GateSettings::builder()
        .initial_rate(1000.0)
        .max_in_flight(1)
        .build();
    let limiter = Limiter::builder().gate(settings.unwrap()).build();
    let client = client();
    let url = format!("http://{server}/");
    let mut first = limiter.send(&client, client.get(&url)).await.unwrap();
    let key = server.to_string();
    let refusal = limiter.try_acquire(key.as_str()).unwrap_err();
    assert_eq!(refusal.reason(), Reason::InFlight);
    while first.chunk().await.unwrap().is_some() {}
    // The response is still there, but its body has ended.
    let sending = limiter.send(&client, client.get(&url));
    let second = sending.within(Duration::from_secs(20)).await.unwrap();
    assert_eq!(
        (first.status(), second.status()),
        (first.status(), first.status())
    );
}

#[tokio::test]
async fn attempt_that_takes_too_long_counts_as_a_timeout() {
    let (server, received) = serve(|_, _| String::new()).await.unwrap();
    let (client, limiter) = (client(), limiter());
    let request = client.get(format!("http://{server}/"));
    let sending = limiter.send(&client, request).backoff(quick());
    let error = sending
        .attempt_timeout(Duration::from_millis(20))
        .await
        .unwrap_err();
    let SendError::NoResponse(error) = error else {
        panic!("{error:?}");
    };
    assert_eq!(
        (error.sent, error.verdict()),
        (2, Some(Verdict::Unreachable))
    );
    assert_eq!(received.load(Ordering::SeqCst), 2);
}

#[tokio::test]
async fn head_counts_if_the_body_takes_longer_than_the_attempt_may() {
    // One of six bytes: the body does not end.
    let head = "HTTP/1.1 429 -\r\nretry-after-ms: 20\r\ncontent-length: 6\r\n\r\nh";
    let (server, received) = serve(move |number, _| match number {
        1 => head.to_owned(),
        _ => response(200, "", "hello"),
    })
    .await
    .unwrap();
    let (client, limiter) = (client(), limiter());
    let request = || client.post(format!("http://{server}/")).body("text");
    let sending = limiter.send(&client, request());
    let timeout = Duration::from_millis(200);
    let response = sending.attempt_timeout(timeout).await.unwrap();
    assert_eq!(response.status(), 200);
    assert_eq!(received.load(Ordering::SeqCst), 2);

    let (server, _) = serve(move |_, _| head.to_owned()).await.unwrap();
    let request = client.get(format!("http://{server}/"));
    let sending = limiter.send(&client, request).within(timeout);
    assert_eq!(sending.await.unwrap().status(), 429, "the response is kept");
}

#[tokio::test]
async fn refreshed_credential_is_in_the_resent_request() {
    let (server, _) = serve(|_, request| match request.contains("authorization: new") {
        true => response(200, "", "hello"),
        false => response(401, "", ""),
    })
    .await
    .unwrap();
    let (client, limiter) = (client(), limiter());
    let old = HeaderValue::from_static("old");
    let new = async || Ok::<_, &str>(HeaderValue::from_static("new"));
    let token = Arc::new(Credential::new("crm", old, new));
    let response = limiter
        .send(&client, client.get(format!("http://{server}/")))
        .credential(token.clone())
        .prepare(&|request| {
            let value = HeaderValue::clone(&token.current());
            request.headers_mut().insert(AUTHORIZATION, value);
        })
        .await
        .unwrap();
    assert_eq!(response.status(), 200);
}

#[tokio::test]
async fn request_that_cannot_be_built_is_not_sent() {
    let (client, limiter) = (client(), limiter());
    for url in ["data:text/plain,x", "not a url"] {
        let error = limiter.send(&client, client.get(url)).await.unwrap_err();
        let is_builder = error.as_reqwest().is_some_and(reqwest::Error::is_builder);
        assert!(is_builder, "{error:?}");
    }
    assert_eq!(limiter.gates(), 0);
}

#[tokio::test]
async fn key_of_the_caller_replaces_that_of_the_host() {
    let (server, _) = serve(|_, _| response(200, "", "")).await.unwrap();
    let (client, limiter) = (client(), limiter());
    let request = client.get(format!("http://{server}/"));
    limiter
        .send(&client, request)
        .key("account:42")
        .await
        .unwrap();
    assert!(limiter.gate("account:42").is_some() && limiter.gates() == 1);
}

/// Counts the attempts it sees, also in the extensions.
#[derive(Clone, Default)]
struct Counter(Arc<Mutex<Vec<u32>>>);

#[async_trait::async_trait]
impl Middleware for Counter {
    async fn handle(
        &self,
        request: reqwest::Request,
        extensions: &mut http::Extensions,
        next: Next<'_>,
    ) -> reqwest_middleware::Result<reqwest::Response> {
        let number = extensions.get::<u32>().copied().unwrap_or_default() + 1;
        extensions.insert(number);
        self.0.lock().expect("no thread panics").push(number);
        next.run(request, extensions).await
    }
}

#[tokio::test]
async fn middleware_sends_again_through_the_rest_of_the_chain() {
    let (server, _) = serve(|number, _| match number {
        1 => response(503, "", ""),
        _ => response(200, "", "hello"),
    })
    .await
    .unwrap();
    let counter = Counter::default();
    let limits = LimiterMiddleware::new(limiter()).backoff(quick());
    let client = ClientBuilder::new(client())
        .with(limits)
        .with(counter.clone())
        .build();
    let response = client
        .get(format!("http://{server}/"))
        .send()
        .await
        .unwrap();
    assert_eq!(response.text().await.unwrap(), "hello");
    assert_eq!(*counter.0.lock().unwrap(), [1, 2], "extensions are kept");
}

#[tokio::test]
async fn middleware_returns_the_error_of_the_client_and_its_own() {
    let free = TcpListener::bind("127.0.0.1:0")
        .await
        .unwrap()
        .local_addr()
        .unwrap();
    let limits = LimiterMiddleware::new(limiter()).backoff(quick());
    let chain = ClientBuilder::new(client()).with(limits).build();
    let error = chain
        .get(format!("http://{free}/"))
        .send()
        .await
        .unwrap_err();
    assert!(error.is_connect(), "{error:?}");

    let isolated = limiter();
    isolated.isolate(&free.to_string()).unwrap();
    let limits = LimiterMiddleware::new(isolated).within(Duration::ZERO);
    let chain = ClientBuilder::new(client()).with(limits).build();
    let error = chain
        .get(format!("http://{free}/"))
        .send()
        .await
        .unwrap_err();
    assert!(error.is_middleware(), "{error:?}");
    assert!(
        format!("{:?}", messages(&error)).contains("breaker"),
        "{error:?}"
    );
}

/// The messages of an error and its sources.
fn messages(error: &dyn std::error::Error) -> Vec<String> {
    let chain = std::iter::successors(Some(error), |error| error.source());
    chain.map(ToString::to_string).collect()
}

#[tokio::test]
async fn layers_take_the_client_as_it_is() {
    let (server, received) = serve(|number, _| match number {
        1 => response(503, "", ""),
        _ => response(200, "", "hello"),
    })
    .await
    .unwrap();
    let request = || client().get(format!("http://{server}/")).build().unwrap();
    let retries = ServiceBuilder::new()
        .layer(RetryLayer::new(limiter()).backoff(quick()))
        .service(client());
    let response: reqwest::Response = retries.oneshot(request()).await.unwrap();
    assert_eq!(response.text().await.unwrap(), "hello");
    assert_eq!(received.load(Ordering::SeqCst), 2);

    let limits = limiter();
    let single = ServiceBuilder::new()
        .layer(LimitLayer::new(limits.clone()))
        .service(client());
    let response: reqwest::Response = single.oneshot(request()).await.unwrap();
    let decided = response.extensions().get::<Decided>().unwrap();
    assert_eq!(decided.classification.verdict, Some(Verdict::Success));
    assert_eq!(limits.gate(&server.to_string()).unwrap().gate.in_flight, 1);
    assert_eq!(response.text().await.unwrap(), "hello");
    assert_eq!(limits.gate(&server.to_string()).unwrap().gate.in_flight, 0);
}

#[tokio::test]
async fn middleware_and_requests_take_the_terms_of_calls() {
    let (server, received) = serve(|number, _| match number {
        1 => response(503, "", ""),
        _ => response(200, "", "hello"),
    })
    .await
    .unwrap();
    let mut options = GateOptions::default();
    for (name, value) in [("initial_rate", "1000"), ("limits", "10/1h")] {
        options.set(name, value).unwrap();
    }
    let limiter = Limiter::builder().gate(options.build().unwrap()).build();
    let seen = Arc::new(Mutex::new(Vec::new()));
    let steps = Arc::clone(&seen);
    let limits = LimiterMiddleware::new(limiter.clone())
        .keyed_by(|request| format!("port:{}", request.url().port().unwrap_or_default()))
        .cost(4)
        .backoff(quick())
        .give_up_after(None)
        .retry_after_jitter(RetryAfterJitter::Percent(50.0))
        .watch(move |step| steps.lock().unwrap().push(step.decision.to_string()));
    let chain = ClientBuilder::new(client()).with(limits).build();
    let url = format!("http://{server}/");
    let sent = chain.get(&url).send().await.unwrap();
    assert_eq!(sent.status(), 200);
    let key = format!("port:{}", server.port());
    let admitted = format!("admitted by `{key}` ");
    let seen = seen.lock().unwrap().join("\n");
    assert!(seen.contains(&admitted), "{seen}");
    assert_eq!(limiter.gates(), 1);

    // Eight of ten are used up, and the third attempt does not wait for an hour.
    let client = client();
    let third = limiter.send(&client, client.get(&url)).key(&key).cost(4);
    let SendError::NoResponse(error) = third.fail_fast().await.unwrap_err() else {
        panic!("it was sent");
    };
    assert_eq!((error.reason, error.sent), (TerminalReason::Expired, 0));
    assert_eq!(received.load(Ordering::SeqCst), 2);
}
