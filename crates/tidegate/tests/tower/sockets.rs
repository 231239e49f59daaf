//! Real clients against a real server on this machine. Gates use a manual clock, so these tests
//! only wait for the sockets.

use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

use http::{Request, Response};
use http_body_util::{BodyExt, Empty};
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;
use policy::hint::Source;
use tidegate::call::Trail;
use tidegate::tower::{Decided, LimitError, LimitLayer, RetryLayer};
use tidegate::{Limiter, ManualClock, Verdict};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tower::{Layer, Service, ServiceExt, service_fn};

use crate::support::limiter;

/// A server that gives these responses, one per connection, and then stops listening. Returns
/// `127.0.0.1:port`, the key of its gate.
async fn server(answers: Vec<&'static str>) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    tokio::spawn(async move {
        for answer in answers {
            let (stream, _) = listener.accept().await.unwrap();
            give(stream, answer).await;
        }
    });
    address
}

/// Reads one request and responds.
async fn give(mut stream: TcpStream, answer: &str) {
    let mut request = Vec::new();
    while !request.ends_with(b"\r\n\r\n") {
        request.push(stream.read_u8().await.unwrap());
    }
    stream.write_all(answer.as_bytes()).await.unwrap();
}

const OK: &str = "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 5\r\n\r\nhello";
const LATER: &str = "HTTP/1.1 429 Too Many Requests\r\nRetry-After: 1\r\n\
     Connection: close\r\nContent-Length: 0\r\n\r\n";
const AT_ONCE: &str = "HTTP/1.1 429 Too Many Requests\r\nRetry-After: 0\r\n\
     Connection: close\r\nContent-Length: 0\r\n\r\n";

const FAST: &[(&str, &str)] = &[("strategy", "fixed"), ("initial_rate", "1000")];

fn hyper_client(
    limiter: &Limiter,
) -> impl Service<
    Request<Empty<&'static [u8]>>,
    Response = Response<hyper::body::Incoming>,
    Error = LimitError,
> + Clone {
    let client = Client::builder(TokioExecutor::new()).build_http();
    LimitLayer::new(limiter.clone()).layer(client)
}

fn reqwest_client(
    limiter: &Limiter,
) -> impl Service<Request<reqwest::Body>, Response = Response<reqwest::Body>, Error = LimitError> + Clone
{
    let client = reqwest::Client::builder().no_proxy().build().unwrap();
    LimitLayer::new(limiter.clone()).layer(service_fn(move |request| {
        let client = client.clone();
        async move {
            let request = reqwest::Request::try_from(request)?;
            client.execute(request).await.map(Response::from)
        }
    }))
}

fn verdict_on<R>(response: &Response<R>) -> Option<Verdict> {
    let decided: &Decided = response.extensions().get().unwrap();
    decided.classification.verdict
}

/// Sends a request that gets a 429 with `Retry-After: 1`, and its retry.
async fn check_retry_after<S, B, R>(client: S, key: &str, clock: &ManualClock, limiter: &Limiter)
where
    S: Service<Request<B>, Response = Response<R>, Error = LimitError> + Clone,
    B: Default,
    R: BodyExt<Error: std::fmt::Debug>,
{
    let request = || {
        let request = Request::get(format!("http://{key}/"));
        request.body(B::default()).unwrap()
    };
    let throttled = client.clone().oneshot(request()).await.unwrap();
    assert_eq!(throttled.status(), 429);
    assert_eq!(verdict_on(&throttled), Some(Verdict::Throttled));
    let (until, source) = limiter.gate(key).unwrap().gate.hold.unwrap();
    assert_eq!(source, Source::RetryAfter);
    let now = limiter.clock().now();
    assert!(until.since(now) >= Duration::from_secs(1), "{until:?}");

    let mut second = pin!(client.oneshot(request()));
    let first_poll =
        std::future::poll_fn(|context| Poll::Ready(second.as_mut().poll(context))).await;
    assert!(first_poll.is_pending());
    assert_eq!(limiter.gate(key).unwrap().gate.waiting, 1);
    clock.advance_to(until + Duration::from_secs(1));
    let response = second.await.unwrap();
    assert_eq!(verdict_on(&response), Some(Verdict::Success));
    let body = response.into_body().collect().await.unwrap().to_bytes();
    assert_eq!(body, "hello", "the body is as it was sent");
}

#[tokio::test]
async fn hyper_client_honours_retry_after() {
    let key = server(vec![LATER, OK]).await;
    let (clock, limiter) = limiter(FAST);
    check_retry_after(hyper_client(&limiter), &key, &clock, &limiter).await;
}

#[tokio::test]
async fn reqwest_client_honours_retry_after() {
    let key = server(vec![LATER, OK]).await;
    let (clock, limiter) = limiter(FAST);
    check_retry_after(reqwest_client(&limiter), &key, &clock, &limiter).await;
}

#[tokio::test]
async fn zero_retry_after_does_not_hold_the_gate() {
    let key = server(vec![AT_ONCE, OK]).await;
    let (clock, limiter) = limiter(FAST);
    let client = hyper_client(&limiter);
    for (status, verdict) in [(429, Verdict::Throttled), (200, Verdict::Success)] {
        let request = Request::get(format!("http://{key}/"));
        let request = request.body(Empty::new()).unwrap();
        let response = client.clone().oneshot(request).await.unwrap();
        assert_eq!(response.status().as_u16(), status);
        assert_eq!(verdict_on(&response), Some(verdict));
        assert_eq!(limiter.gate(&key).unwrap().gate.hold, None);
        clock.advance(Duration::from_millis(5));
    }
}

#[tokio::test]
async fn hyper_client_with_retries_gets_a_success() {
    let key = server(vec![LATER, AT_ONCE, OK]).await;
    let (clock, limiter) = limiter(FAST);
    let client = Client::builder(TokioExecutor::new()).build_http::<Empty<&'static [u8]>>();
    let client = RetryLayer::new(limiter.clone()).layer(client);
    let request = Request::get(format!("http://{key}/"));
    let mut answer = pin!(client.oneshot(request.body(Empty::new()).unwrap()));
    let response = std::future::poll_fn(|context| {
        let poll = answer.as_mut().poll(context);
        // Wakes it if it waits for the clock and not for the server.
        clock.advance(Duration::from_secs(10));
        poll
    });
    let response = response.await.unwrap();
    assert_eq!(response.status(), 200);
    let trail: &Trail = response.extensions().get().unwrap();
    assert!(trail.waited() >= Duration::from_secs(1));
    assert_eq!(limiter.gate(&key).unwrap().gate.succeeded, 1);
}

#[tokio::test]
async fn unreachable_server_opens_the_breaker() {
    let key = server(vec![OK]).await;
    let (clock, limiter) = limiter(FAST);
    let client = hyper_client(&limiter);
    let send = || {
        clock.advance(Duration::from_millis(5));
        let request = Request::get(format!("http://{key}/"));
        client.clone().oneshot(request.body(Empty::new()).unwrap())
    };
    send().await.unwrap();
    let mut errors = 0;
    while limiter.gate(&key).unwrap().gate.breaker_until.is_none() {
        assert!(errors < 100, "the breaker never opens");
        let error = send().await.unwrap_err();
        assert!(error.refusal().is_none(), "{error:?}");
        errors += 1;
    }
    assert_eq!(limiter.gate(&key).unwrap().gate.in_flight, 0);
}
