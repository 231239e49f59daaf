//! The retry layer: several attempts per request.

use std::collections::VecDeque;
use std::error::Error;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use http::{Request, Response};
use policy::item::TerminalReason;
use policy::preset::Preset;
use policy::time::Timestamp;
use tidegate::call::{CallDecision, GIVE_UP_AFTER, Trail};
use tidegate::http::Rule;
use tidegate::tower::{RetryError, RetryLayer};
use tidegate::{Credential, HostSettings, Limiter, ManualClock, Refresh, Verdict};
use tower::{Layer, Service, ServiceExt, service_fn};

use crate::drive::{drive, gate};
use crate::support::{Answer, BoxError, EventNames, KEY, Mock, SLOW, Task, builder, get, limiter};

const URL: &str = "https://api.example.com/items";
const FAST: &[(&str, &str)] = &[("strategy", "fixed"), ("initial_rate", "1000")];

/// What a scripted server does with one request.
type Reply = fn() -> Answer;

/// A service that gives these replies, one per request, and records the requests.
fn scripted(
    replies: &[Reply],
) -> (
    Seen,
    impl Service<
        Request<&'static str>,
        Response = Response<&'static str>,
        Error = BoxError,
        Future: Send,
    > + Clone
    + Send
    + 'static,
) {
    let replies: Arc<Mutex<VecDeque<Reply>>> =
        Arc::new(Mutex::new(replies.iter().copied().collect()));
    let seen = Seen::default();
    let requests = seen.clone();
    let service = service_fn(move |request: Request<&'static str>| {
        requests.lock().unwrap().push(request);
        let reply = replies.lock().unwrap().pop_front();
        std::future::ready(reply.expect("one request too many")())
    });
    (seen, service)
}

type Seen = Arc<Mutex<Vec<Request<&'static str>>>>;

fn count(seen: &Seen) -> usize {
    seen.lock().unwrap().len()
}

fn status(status: u16) -> Answer {
    Ok(Response::builder().status(status).body("body").unwrap())
}

fn throttled(seconds: &str) -> Answer {
    let response = Response::builder().status(429);
    Ok(response.header("retry-after", seconds).body("").unwrap())
}

fn refused() -> Answer {
    Err(io::Error::from(io::ErrorKind::ConnectionRefused).into())
}

fn reset() -> Answer {
    Err(io::Error::from(io::ErrorKind::ConnectionReset).into())
}

fn post() -> Request<&'static str> {
    Request::post(URL).body("order").unwrap()
}

/// Sends through a layer to a scripted server; returns the result and the number of requests.
fn send(
    clock: &ManualClock,
    layer: &RetryLayer,
    request: Request<&'static str>,
    replies: &[Reply],
) -> (Result<Response<&'static str>, RetryError>, usize) {
    let (seen, service) = scripted(replies);
    let answer = drive(clock, layer.layer(service).oneshot(request));
    (answer, count(&seen))
}

fn trail_of<R>(response: &Response<R>) -> &Trail {
    response.extensions().get().unwrap()
}

fn end_of(trail: &Trail) -> Option<TerminalReason> {
    match trail.steps().last()?.decision {
        CallDecision::Over { reason } => Some(reason),
        _ => None,
    }
}

#[test]
fn resends_method_headers_and_body() {
    let (clock, limiter) = limiter(FAST);
    let (seen, service) = scripted(&[|| status(503), refused, || status(200)]);
    let request = Request::get(URL).header("x-page", "2").body("").unwrap();
    let service = RetryLayer::new(limiter.clone()).layer(service);
    let response = drive(&clock, service.oneshot(request)).unwrap();
    assert_eq!(response.status(), 200);
    for request in &*seen.lock().unwrap() {
        assert_eq!(request.uri(), URL);
        assert_eq!(request.headers()["x-page"], "2");
    }
    assert_eq!(count(&seen), 3);
    let answers = trail_of(&response).steps().iter();
    let verdicts: Vec<Verdict> = answers
        .filter_map(|step| match step.decision {
            CallDecision::Settled { verdict, .. } => verdict,
            _ => None,
        })
        .collect();
    let expected = [Verdict::Overloaded, Verdict::Unreachable, Verdict::Success];
    assert_eq!(verdicts, expected);
    let gate = limiter.gate(KEY).unwrap().gate;
    assert_eq!((gate.admitted, gate.succeeded, gate.failed), (3, 1, 2));
}

#[test]
fn honours_a_directed_wait() {
    let (clock, limiter) = limiter(FAST);
    let layer = RetryLayer::new(limiter);
    let before = clock.clock().now();
    let (response, sent) = send(
        &clock,
        &layer,
        get(URL),
        &[|| throttled("30"), || status(200)],
    );
    assert_eq!((response.unwrap().status().as_u16(), sent), (200, 2));
    assert!(clock.clock().now().since(before) >= Duration::from_secs(30));
}

#[test]
fn unsafe_request_is_sent_once_if_the_server_may_have_acted() {
    let (clock, limiter) = limiter(FAST);
    let layer = RetryLayer::new(limiter);
    let once: [Reply; 1] = [|| status(502)];
    let (response, _) = send(&clock, &layer, post(), &once);
    let response = response.unwrap();
    assert_eq!(response.status(), 502, "the server's answer is the answer");
    let end = end_of(trail_of(&response));
    assert_eq!(end, Some(TerminalReason::Exhausted));
    let (error, _) = send(&clock, &layer, post(), &[reset]);
    assert!(matches!(error, Err(RetryError::Failed { .. })));

    let again: [Reply; 3] = [refused, || throttled("1"), || status(201)];
    let (response, sent) = send(&clock, &layer, post(), &again);
    assert_eq!((response.unwrap().status().as_u16(), sent), (201, 3));
}

#[test]
fn idempotency_key_or_retry_unsafe_allows_resending() {
    let (clock, limiter) = limiter(FAST);
    let layer = RetryLayer::new(limiter);
    let twice: [Reply; 2] = [|| status(502), || status(201)];
    let mut keyed = post();
    keyed
        .headers_mut()
        .insert("idempotency-key", "1".parse().unwrap());
    assert_eq!(send(&clock, &layer, keyed, &twice).1, 2);
    let layer = layer.retry_unsafe();
    assert_eq!(send(&clock, &layer, post(), &twice).1, 2);
}

#[test]
fn backoff_bounds_attempts_and_last_error_is_returned() {
    let (clock, limiter) = limiter(FAST);
    let layer = RetryLayer::new(limiter).backoff(Preset::Crawl.settings());
    let (error, sent) = send(&clock, &layer, get(URL), &[reset, reset, refused]);
    let error = error.unwrap_err();
    assert_eq!(sent, 3);
    let trail = error.trail().unwrap();
    assert_eq!(end_of(trail), Some(TerminalReason::Exhausted));
    let source = error.source().unwrap().downcast_ref::<io::Error>();
    let kind = source.map(io::Error::kind);
    assert_eq!(kind, Some(io::ErrorKind::ConnectionRefused));
}

#[test]
fn does_not_wait_for_a_retry_past_the_deadline() {
    let (clock, limiter) = limiter(FAST);
    let layer = RetryLayer::new(limiter).within(Duration::from_secs(10));
    let before = clock.clock().now();
    let (response, sent) = send(&clock, &layer, get(URL), &[|| throttled("60")]);
    let response = response.unwrap();
    assert_eq!((response.status().as_u16(), sent), (429, 1));
    assert_eq!(end_of(trail_of(&response)), Some(TerminalReason::Expired));
    assert_eq!(clock.clock().now(), before);
}

#[test]
fn request_refused_by_its_deadline_is_not_sent() {
    let (clock, limiter) = limiter(FAST);
    limiter.isolate(KEY).unwrap();
    let layer = RetryLayer::new(limiter).within(Duration::from_secs(10));
    let (error, sent) = send(&clock, &layer, get(URL), &[]);
    let Err(RetryError::NoResponse(error)) = error else {
        panic!("{error:?}");
    };
    assert_eq!((error.sent, sent), (0, 0));
    assert!(error.may_succeed_later(), "{error}");
}

#[test]
fn gives_up_on_a_gate_that_never_admits() {
    let (clock, limiter) = limiter(FAST);
    limiter.isolate(KEY).unwrap();
    let layer = RetryLayer::new(limiter);
    let (error, _) = send(&clock, &layer, get(URL), &[]);
    let Err(RetryError::NoResponse(error)) = error else {
        panic!("{error:?}");
    };
    assert_eq!(error.reason, TerminalReason::BreakerOpen);
    assert!(clock.clock().now() >= Timestamp::ZERO + GIVE_UP_AFTER / 2);
}

#[test]
fn interactive_requests_leave_before_background_ones() {
    let (clock, limiter) = limiter(SLOW);
    let mock = Mock::default();
    let interactive = RetryLayer::new(limiter.clone()).layer(mock.clone());
    let background = RetryLayer::new(limiter.clone()).background();
    let background = background.layer(mock);
    limiter.try_acquire(KEY).unwrap().settle(&ok());
    let mut second = Task::new(background.oneshot(get(URL)));
    let mut first = Task::new(interactive.oneshot(get(URL)));
    assert!(second.poll().is_pending() && first.poll().is_pending());
    clock.advance(Duration::from_secs(1));
    assert!(first.is_woken() && !second.is_woken());
}

#[test]
fn host_rules_decide_about_retries() {
    let host = HostSettings {
        rules: [Rule {
            statuses: vec![404],
            ..Rule::new(Verdict::Overloaded)
        }]
        .into(),
        ..HostSettings::from(gate(FAST))
    };
    let (clock, builder) = builder(FAST);
    let limiter = builder.host(KEY.parse().unwrap(), host).build();
    let layer = RetryLayer::new(limiter);
    let (response, sent) = send(&clock, &layer, get(URL), &[|| status(404), || status(200)]);
    assert_eq!((response.unwrap().status().as_u16(), sent), (200, 2));
    let other_host = get("https://www.example.com/");
    let (response, _) = send(&clock, &layer, other_host, &[|| status(404)]);
    let response = response.unwrap();
    let end = end_of(trail_of(&response));
    assert_eq!(end, Some(TerminalReason::Rejected));
}

#[test]
fn error_about_the_request_is_not_retried_and_does_not_count() {
    let events = EventNames::default();
    let (clock, builder) = builder(FAST);
    let limiter = builder.listener(events.listener()).build();
    let layer = RetryLayer::new(limiter.clone());
    let impossible: Reply = || Err("client error (UserUnsupportedVersion)".into());
    let (error, sent) = send(&clock, &layer, get(URL), &[impossible]);
    assert!(matches!(error, Err(RetryError::Failed { .. })));
    assert_eq!(sent, 1);
    assert_eq!(events.take(), ["admitted"], "given back, not settled");
    let gate = limiter.gate(KEY).unwrap().gate;
    assert_eq!((gate.in_flight, gate.failed), (0, 0));
}

#[test]
fn unsent_request_returns_its_token() {
    let (clock, limiter) = limiter(SLOW);
    let layer = RetryLayer::new(limiter.clone());
    let impossible: Reply = || Err("client error (UserUnsupportedVersion)".into());
    let (error, _) = send(&clock, &layer, get(URL), &[impossible]);
    let error = error.unwrap_err();
    let last = error.trail().and_then(|trail| trail.steps().last());
    assert_eq!(last.map(|step| &step.decision), Some(&CallDecision::Unsent));
    limiter.try_acquire(KEY).unwrap().settle(&ok());
}

#[test]
fn request_without_host_needs_keyed_by() {
    let (clock, limiter) = limiter(FAST);
    let layer = RetryLayer::new(limiter.clone());
    let (error, _) = send(&clock, &layer, get("/items"), &[]);
    assert!(matches!(error, Err(RetryError::Key(_))), "{error:?}");

    let layer = layer.keyed_by(|_: &Request<&'static str>| "items".to_owned());
    let (_, service) = scripted(&[|| status(200)]);
    let service = layer.layer(service);
    drive(&clock, service.oneshot(get("/items"))).unwrap();
    assert!(limiter.gate("items").is_some());
}

#[test]
fn refreshes_the_credential_once_and_resends() {
    let (clock, limiter) = limiter(FAST);
    let made = Arc::new(AtomicU64::new(0));
    let counted = Arc::clone(&made);
    let credential = Arc::new(Credential::new("crm", 0, move || {
        let number = counted.fetch_add(1, Ordering::SeqCst) + 1;
        std::future::ready(Ok::<_, &str>(number))
    }));
    let refresh: Arc<dyn Refresh> = Arc::clone(&credential) as _;
    let layer = RetryLayer::new(limiter).credential(refresh);
    let used = Arc::clone(&credential);
    // The service below adds the current token.
    let service = service_fn(move |_: Request<&'static str>| {
        let is_new = *used.current() > 0;
        std::future::ready(status(if is_new { 200 } else { 401 }))
    });
    let response = drive(&clock, layer.layer(service).oneshot(get(URL))).unwrap();
    assert_eq!(response.status(), 200);
    assert_eq!(made.load(Ordering::SeqCst), 1);
}

#[test]
fn every_attempt_waits_for_readiness() {
    let (clock, limiter) = limiter(FAST);
    let mock = Mock::default();
    mock.allow(1);
    let mut service = RetryLayer::new(limiter).layer(mock.clone());
    let mut context = Context::from_waker(Waker::noop());
    assert!(service.poll_ready(&mut context).is_ready());
    let mut task = Task::new(service.call(get(URL)));
    assert!(service.poll_ready(&mut context).is_pending());
    assert!(task.poll().is_pending());
    mock.next_call().unwrap().status(503);
    assert!(task.poll().is_pending());
    clock.advance(Duration::from_secs(5));
    assert!(task.poll().is_pending());
    assert!(mock.next_call().is_none(), "the second is not ready yet");
    mock.allow(1);
    assert!(task.poll().is_pending());
    mock.next_call().unwrap().status(200);
    assert_eq!(task.output().unwrap().status(), 200);
}

#[test]
fn broken_service_ends_the_request() {
    let (clock, limiter) = limiter(FAST);
    let mock = Mock::default();
    let mut service = RetryLayer::new(limiter.clone()).layer(mock.clone());
    let mut context = Context::from_waker(Waker::noop());
    assert!(service.poll_ready(&mut context).is_ready());
    let mut task = Task::new(service.call(get(URL)));
    assert!(task.poll().is_pending());
    mock.next_call().unwrap().status(503);
    assert!(task.poll().is_pending());
    mock.break_down();
    let Poll::Ready(Err(error)) = service.poll_ready(&mut context) else {
        panic!("the service is broken");
    };
    assert!(matches!(error, RetryError::Failed { .. }));
    clock.advance(Duration::from_secs(5));
    let error = task.output().unwrap_err();
    assert_eq!(error.source().unwrap().to_string(), "broken for good");
    assert_eq!(limiter.gate(KEY).unwrap().gate.in_flight, 0);
}

/// Attempts in flight and waiting asks at the gate.
fn load(limiter: &Limiter) -> (u32, u32) {
    let gate = limiter.gate(KEY).unwrap().gate;
    (gate.in_flight, gate.waiting)
}

#[test]
fn dropping_at_any_point_returns_what_it_holds() {
    // How many of these steps are taken before the future is dropped.
    for steps in 0..=5 {
        let (clock, limiter) = limiter(SLOW);
        limiter.try_acquire(KEY).unwrap().give_back();
        let mock = Mock::default();
        let service = RetryLayer::new(limiter.clone()).layer(mock.clone());
        let mut task = Task::new(service.oneshot(get(URL)));
        let mut call = None;
        for step in 1..=steps {
            match step {
                // In flight.
                1 => assert!(task.poll().is_pending()),
                // Answered, now waiting for its backoff.
                2 => {
                    mock.next_call().unwrap().status(503);
                    assert!(task.poll().is_pending());
                    assert_eq!(load(&limiter), (0, 0));
                }
                // In line, because another request has taken the token.
                3 => {
                    clock.advance(Duration::from_secs(30));
                    limiter.try_acquire(KEY).unwrap().settle(&ok());
                    assert!(task.poll().is_pending());
                    assert_eq!(load(&limiter), (0, 1));
                }
                // Admitted, but not polled since.
                4 => {
                    clock.advance(Duration::from_secs(1));
                    assert!(task.is_woken());
                }
                _ => {
                    assert!(task.poll().is_pending());
                    call = mock.next_call();
                    assert_eq!(load(&limiter), (1, 0));
                }
            }
        }
        drop(task);
        assert_eq!(load(&limiter), (0, 0), "after {steps} steps");
        assert!(call.is_none_or(|call| call.is_cancelled()));
    }
}

fn ok() -> tidegate::Outcome {
    tidegate::Outcome::status(200, Duration::ZERO)
}

#[tokio::test]
async fn future_is_send() {
    let (_clock, limiter) = limiter(FAST);
    let (_, service) = scripted(&[|| status(200)]);
    let service = RetryLayer::new(limiter).layer(service);
    let answer = tokio::spawn(service.oneshot(get(URL))).await.unwrap();
    assert_eq!(answer.unwrap().status(), 200);
}

/// A body that is not `Clone`.
#[derive(Debug)]
struct Stream(&'static str);

#[test]
fn request_that_is_not_copied_is_sent_once() {
    let copied = |body: &'static str| {
        let (clock, limiter) = limiter(FAST);
        let layer = RetryLayer::new(limiter).clone_with(|request: &Request<Stream>| {
            let is_text = request.body().0 == "text";
            is_text.then(|| Request::put(URL).body(Stream("text")).unwrap())
        });
        let sent = Arc::new(AtomicU64::new(0));
        let count = Arc::clone(&sent);
        let service = service_fn(move |_: Request<Stream>| {
            count.fetch_add(1, Ordering::SeqCst);
            std::future::ready(status(502))
        });
        let request = Request::put(URL).body(Stream(body)).unwrap();
        let response = drive(&clock, layer.layer(service).oneshot(request)).unwrap();
        assert_eq!(response.status(), 502);
        sent.load(Ordering::SeqCst)
    };
    assert_eq!((copied("text"), copied("stream")), (5, 1));
}
