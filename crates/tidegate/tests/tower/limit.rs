//! The limit layer: one permit per request.

use std::error::Error;
use std::io;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use http::{Request, Response};
use tidegate::http::Rule;
use tidegate::tower::{Decided, Limit, LimitError, LimitLayer, UriHost};
use tidegate::{HostSettings, Limiter, Reason, Verdict};
use tower::{Layer, Service, ServiceBuilder, ServiceExt, service_fn};

use crate::drive::gate;
use crate::support::{EventNames, KEY, Mock, SLOW, Task, builder, get, limiter};

const URL: &str = "https://api.example.com/items";

fn limited(limiter: &Limiter) -> (Mock, Limit<Mock, UriHost>) {
    let mock = Mock::default();
    let service = LimitLayer::new(limiter.clone()).layer(mock.clone());
    (mock, service)
}

/// Sends through a clone that has become ready, like a client.
fn send(service: &Limit<Mock, UriHost>, uri: &str) -> Task<impl Future<Output = Sent> + use<>> {
    Task::new(service.clone().oneshot(get(uri)))
}

type Sent = Result<Response<&'static str>, LimitError>;

/// Attempts in flight and waiting asks at the gate, or `None` if there is no gate.
fn load(limiter: &Limiter) -> Option<(u32, u32)> {
    let gate = limiter.gate(KEY)?.gate;
    Some((gate.in_flight, gate.waiting))
}

#[test]
fn request_is_sent_at_once_while_permits_are_available() {
    let (clock, limiter) = limiter(SLOW);
    let (mock, service) = limited(&limiter);
    let mut task = send(&service, "https://API.example.com:443/items");
    assert!(task.poll().is_pending());
    assert_eq!(load(&limiter), Some((1, 0)));
    let call = mock.next_call().unwrap();
    assert_eq!(call.request.uri().path(), "/items");
    clock.advance(Duration::from_millis(80));
    call.status(200);
    assert!(task.is_woken());
    let response = task.output().unwrap();
    assert_eq!(
        (response.status().as_u16(), *response.body()),
        (200, "body")
    );
    let decided: &Decided = response.extensions().get().unwrap();
    assert_eq!(decided.classification.verdict, Some(Verdict::Success));
    assert_eq!(decided.waited, Duration::ZERO);
    assert_eq!(decided.latency, Duration::from_millis(80));
    assert_eq!(load(&limiter), Some((0, 0)));
    assert_eq!(limiter.gate(KEY).unwrap().gate.succeeded, 1);
}

#[test]
fn requests_leave_in_order_and_latency_excludes_waiting() {
    let (clock, limiter) = limiter(SLOW);
    let (mock, service) = limited(&limiter);
    let mut tasks: Vec<_> = ["/0", "/1", "/2"]
        .map(|path| send(&service, &format!("https://{KEY}{path}")))
        .into();
    for task in &mut tasks {
        assert!(task.poll().is_pending());
    }
    assert_eq!(load(&limiter), Some((1, 2)));
    for (number, task) in tasks.iter_mut().enumerate() {
        if number > 0 {
            assert!(mock.next_call().is_none());
            clock.advance(Duration::from_secs(1));
            assert!(task.is_woken() && task.poll().is_pending());
        }
        let call = mock.next_call().unwrap();
        assert_eq!(call.request.uri().path(), format!("/{number}"));
        call.status(204);
        let response = task.output().unwrap();
        let decided: &Decided = response.extensions().get().unwrap();
        assert_eq!(decided.latency, Duration::ZERO);
        assert_eq!(decided.waited > Duration::ZERO, number > 0);
    }
}

#[test]
fn dropping_at_any_point_returns_what_it_holds() {
    /// How far the request has got when it is dropped.
    #[derive(Clone, Copy, Debug, PartialEq, PartialOrd)]
    enum Progress {
        NotPolled,
        InLine,
        AdmittedNotPolled,
        UnderWay,
        AnsweredNotPolled,
    }
    let points = [
        Progress::NotPolled,
        Progress::InLine,
        Progress::AdmittedNotPolled,
        Progress::UnderWay,
        Progress::AnsweredNotPolled,
    ];
    for got in points {
        let (clock, limiter) = limiter(SLOW);
        let (mock, service) = limited(&limiter);
        let mut first = send(&service, URL);
        assert!(first.poll().is_pending());
        mock.next_call().unwrap().status(200);
        first.output().unwrap();

        let mut task = send(&service, URL);
        if got >= Progress::InLine {
            assert!(task.poll().is_pending());
            assert_eq!(load(&limiter), Some((0, 1)), "{got:?}");
        }
        if got >= Progress::AdmittedNotPolled {
            clock.advance(Duration::from_secs(1));
            assert!(task.is_woken(), "{got:?}");
        }
        let mut call = None;
        if got >= Progress::UnderWay {
            assert!(task.poll().is_pending());
            assert_eq!(load(&limiter), Some((1, 0)), "{got:?}");
            call = mock.next_call();
            assert!(call.is_some(), "{got:?}");
        }
        if got >= Progress::AnsweredNotPolled {
            call.take().unwrap().status(200);
        }
        drop(task);
        assert_eq!(load(&limiter), Some((0, 0)), "{got:?}");
        assert!(call.is_none_or(|call| call.is_cancelled()), "{got:?}");
        assert!(mock.next_call().is_none(), "{got:?}");

        // It does not delay the next request, except for the token of a request that was sent.
        clock.advance(Duration::from_secs(1));
        let mut next = send(&service, URL);
        assert!(next.poll().is_pending());
        assert!(mock.next_call().is_some(), "{got:?}");
    }
}

#[test]
fn unused_token_goes_to_the_next_request() {
    let (clock, limiter) = limiter(SLOW);
    let (mock, service) = limited(&limiter);
    let mut first = send(&service, URL);
    assert!(first.poll().is_pending());
    mock.next_call().unwrap().status(200);
    let (mut second, mut third) = (send(&service, URL), send(&service, URL));
    assert!(second.poll().is_pending() && third.poll().is_pending());
    clock.advance(Duration::from_secs(1));
    assert!(second.is_woken() && !third.is_woken());
    drop(second);
    assert!(third.is_woken());
    assert!(third.poll().is_pending());
    assert!(mock.next_call().is_some());
}

#[test]
fn service_error_counts_as_a_failure() {
    let events = EventNames::default();
    let (clock, builder) = builder(SLOW);
    let limiter = builder.listener(events.listener()).build();
    let (mock, service) = limited(&limiter);
    let mut task = send(&service, URL);
    assert!(task.poll().is_pending());
    clock.advance(Duration::from_millis(10));
    let refused = io::Error::from(io::ErrorKind::ConnectionRefused);
    mock.next_call().unwrap().answer(Err(refused.into()));
    let error = task.output().unwrap_err();
    assert_eq!(events.take(), ["admitted", "settled unreachable"]);
    assert_eq!(limiter.gate(KEY).unwrap().gate.failed, 1);
    assert!(!error.server_may_have_acted());
    assert!(error.refusal().is_none());
    let source = error.source().unwrap();
    let kind = source.downcast_ref::<io::Error>().map(io::Error::kind);
    assert_eq!(kind, Some(io::ErrorKind::ConnectionRefused));

    clock.advance(Duration::from_secs(1));
    let mut task = send(&service, URL);
    assert!(task.poll().is_pending());
    mock.next_call().unwrap().answer(Err("unknown".into()));
    assert!(task.output().unwrap_err().server_may_have_acted());
}

#[test]
fn error_about_the_request_does_not_count() {
    let events = EventNames::default();
    let (_clock, builder) = builder(SLOW);
    let limiter = builder.listener(events.listener()).build();
    let (mock, service) = limited(&limiter);
    let mut task = send(&service, URL);
    assert!(task.poll().is_pending());
    let words = "client error (UserUnsupportedVersion)";
    mock.next_call().unwrap().answer(Err(words.into()));
    assert!(!task.output().unwrap_err().server_may_have_acted());
    assert_eq!(events.take(), ["admitted"]);
    assert!(limiter.try_acquire(KEY).is_ok(), "its token is there again");
}

#[test]
fn directed_wait_holds_the_gate() {
    let (clock, limiter) = limiter(&[("strategy", "fixed"), ("initial_rate", "1000")]);
    let (mock, service) = limited(&limiter);
    let mut task = send(&service, URL);
    assert!(task.poll().is_pending());
    let retry_after = [("Retry-After", "7")];
    mock.next_call().unwrap().with_headers(429, &retry_after);
    let response = task.output().unwrap();
    assert_eq!(response.status(), 429, "the caller still gets the response");
    let decided: &Decided = response.extensions().get().unwrap();
    assert_eq!(decided.classification.verdict, Some(Verdict::Throttled));

    let mut next = send(&service, URL);
    assert!(next.poll().is_pending());
    clock.advance(Duration::from_millis(6_999));
    assert!(!next.is_woken());
    clock.advance(Duration::from_millis(1_001));
    assert!(next.is_woken() && next.poll().is_pending());
    mock.next_call().unwrap().status(200);
    let response = next.output().unwrap();
    let decided: &Decided = response.extensions().get().unwrap();
    assert!(decided.waited >= Duration::from_secs(7));
}

#[test]
fn host_rules_take_precedence() {
    let host = HostSettings {
        rules: [Rule {
            statuses: vec![418],
            ..Rule::new(Verdict::Throttled)
        }]
        .into(),
        ..HostSettings::from(gate(SLOW))
    };
    let events = EventNames::default();
    let (clock, builder) = builder(SLOW);
    let limiter = builder
        .host(KEY.parse().unwrap(), host)
        .listener(events.listener())
        .build();
    let (mock, service) = limited(&limiter);
    for (uri, verdict) in [
        (URL, Verdict::Throttled),
        ("https://www.example.com/", Verdict::Rejected),
    ] {
        clock.advance(Duration::from_secs(10));
        events.take();
        let mut task = send(&service, uri);
        assert!(task.poll().is_pending());
        mock.next_call().unwrap().status(418);
        let response = task.output().unwrap();
        let decided: &Decided = response.extensions().get().unwrap();
        assert_eq!(decided.classification.verdict, Some(verdict));
        let settled = format!("settled {}", verdict.as_str());
        assert!(events.take().contains(&settled), "{uri}");
    }
}

#[test]
fn informational_response_changes_nothing() {
    let (_clock, limiter) = limiter(SLOW);
    let (mock, service) = limited(&limiter);
    let mut task = send(&service, URL);
    assert!(task.poll().is_pending());
    mock.next_call().unwrap().status(101);
    let response = task.output().unwrap();
    let decided: &Decided = response.extensions().get().unwrap();
    assert_eq!(decided.classification.verdict, None);
    let gate = limiter.gate(KEY).unwrap().gate;
    assert_eq!((gate.in_flight, gate.succeeded, gate.failed), (0, 0, 0));
}

#[test]
fn refusal_has_reason_and_end() {
    let (_clock, limiter) = limiter(SLOW);
    let mock = Mock::default();
    let layer = LimitLayer::new(limiter).within(Duration::ZERO);
    let service = layer.layer(mock.clone());
    let mut first = send(&service, URL);
    assert!(first.poll().is_pending());
    let mut second = send(&service, URL);
    let error = second.output().unwrap_err();
    let refusal = *error.refusal().unwrap();
    assert_eq!(refusal.reason(), Reason::Rate);
    assert!(
        refusal
            .wait()
            .is_some_and(|wait| wait <= Duration::from_secs(1))
    );
    assert!(!error.server_may_have_acted());
    assert!(error.source().unwrap().to_string().starts_with("not yet"));
    assert!(mock.next_call().is_some() && mock.next_call().is_none());
}

#[test]
fn deadline_ends_the_wait() {
    let (clock, limiter) = limiter(&[("max_in_flight", "1"), ("initial_rate", "1000")]);
    let mock = Mock::default();
    let layer = LimitLayer::new(limiter.clone()).within(Duration::from_secs(3));
    let service = layer.layer(mock);
    let mut first = send(&service, URL);
    assert!(first.poll().is_pending());
    let mut second = send(&service, URL);
    assert!(second.poll().is_pending());
    clock.advance(Duration::from_secs(3));
    assert!(second.is_woken());
    let error = second.output().unwrap_err();
    assert_eq!(error.refusal().unwrap().reason(), Reason::InFlight);
    assert_eq!(load(&limiter), Some((1, 0)));
}

#[test]
fn interactive_requests_leave_before_background_ones() {
    let (clock, limiter) = limiter(SLOW);
    let mock = Mock::default();
    let interactive = LimitLayer::new(limiter.clone()).layer(mock.clone());
    let background = LimitLayer::new(limiter).background();
    let background = background.layer(mock);
    let mut first = send(&interactive, URL);
    assert!(first.poll().is_pending());
    let mut second = send(&background, URL);
    let mut first = send(&interactive, URL);
    assert!(second.poll().is_pending() && first.poll().is_pending());
    clock.advance(Duration::from_secs(1));
    assert!(first.is_woken() && !second.is_woken());
}

#[test]
fn request_without_host_is_not_sent() {
    let (_clock, limiter) = limiter(SLOW);
    let (mock, service) = limited(&limiter);
    let error = send(&service, "/items?token=secret").output().unwrap_err();
    assert!(matches!(error, LimitError::Key(_)), "{error:?}");
    assert!(!format!("{error:?}").contains("secret"));
    assert!(mock.next_call().is_none());
    assert_eq!(limiter.gates(), 0);
}

#[test]
fn keyed_by_names_the_gate() {
    let (_clock, limiter) = limiter(SLOW);
    let mock = Mock::default();
    let layer = LimitLayer::new(limiter.clone())
        .keyed_by(|request: &Request<&'static str>| format!("path:{}", request.uri().path()));
    let mut task = Task::new(layer.layer(mock.clone()).oneshot(get("/items")));
    assert!(task.poll().is_pending());
    assert_eq!(limiter.gate("path:/items").unwrap().gate.in_flight, 1);
    mock.next_call().unwrap().status(200);
    task.output().unwrap();
}

#[test]
fn is_ready_when_the_service_below_is() {
    let (_clock, limiter) = limiter(&[("strategy", "fixed"), ("initial_rate", "1000")]);
    let (mock, mut service) = limited(&limiter);
    let mut context = Context::from_waker(Waker::noop());
    mock.allow(0);
    assert!(service.poll_ready(&mut context).is_pending());
    mock.allow(1);
    assert!(service.poll_ready(&mut context).is_ready());
    let mut task = Task::new(service.call(get(URL)));
    // The clone left behind has to become ready itself.
    assert!(service.poll_ready(&mut context).is_pending());
    assert!(task.poll().is_pending());
    mock.next_call().unwrap().status(200);
    task.output().unwrap();

    mock.break_down();
    let Poll::Ready(Err(error)) = service.poll_ready(&mut context) else {
        panic!("the service is broken");
    };
    assert_eq!(error.source().unwrap().to_string(), "broken for good");
    assert!(error.server_may_have_acted(), "unknown");
}

#[test]
fn readiness_is_held_while_waiting_in_line() {
    let (clock, limiter) = limiter(SLOW);
    let (mock, mut service) = limited(&limiter);
    let mut context = Context::from_waker(Waker::noop());
    mock.allow(2);
    let mut tasks: Vec<_> = (0..2)
        .map(|_| {
            assert!(service.poll_ready(&mut context).is_ready());
            Task::new(service.call(get(URL)))
        })
        .collect();
    assert!(service.poll_ready(&mut context).is_pending());
    for task in &mut tasks {
        assert!(task.poll().is_pending());
    }
    clock.advance(Duration::from_secs(1));
    // The second is sent by the clone that became ready for it; otherwise the mock would panic.
    assert!(tasks[1].poll().is_pending());
    assert!(mock.next_call().is_some() && mock.next_call().is_some());
}

#[test]
fn inner_refusal_returns_the_outer_permit() {
    let events = EventNames::default();
    let (_clock, builder) = builder(SLOW);
    let limiter = builder.listener(events.listener()).build();
    let by_account = |_: &Request<&'static str>| "account".to_owned();
    let service = ServiceBuilder::new()
        .layer(LimitLayer::new(limiter.clone()).keyed_by(by_account))
        .layer(LimitLayer::new(limiter.clone()).within(Duration::ZERO))
        .service(Mock::default());
    let held_by_someone = limiter.try_acquire(KEY).unwrap();
    let error = Task::new(service.oneshot(get(URL))).output().unwrap_err();
    assert_eq!(error.refusal().unwrap().reason(), Reason::Rate);
    assert_eq!(events.take(), ["admitted", "admitted", "refused"]);
    assert!(
        limiter.try_acquire("account").is_ok(),
        "its token is returned"
    );
    drop(held_by_someone);
}

#[tokio::test(start_paused = true)]
async fn composes_with_other_middleware() {
    let (_clock, limiter) = limiter(SLOW);
    let never = service_fn(async |_: Request<&'static str>| {
        std::future::pending::<Result<Response<()>, io::Error>>().await
    });
    let service = ServiceBuilder::new()
        .boxed_clone()
        .concurrency_limit(8)
        .timeout(Duration::from_secs(60))
        .layer(LimitLayer::new(limiter.clone()))
        .concurrency_limit(1)
        .timeout(Duration::from_secs(5))
        .service(never);
    let error = service.oneshot(get(URL)).await.unwrap_err();
    let error: Box<LimitError> = error.downcast().unwrap();
    assert!(error.server_may_have_acted());
    let gate = limiter.gate(KEY).unwrap().gate;
    assert_eq!(
        (gate.in_flight, gate.failed),
        (0, 1),
        "the gate learns from a timeout inside"
    );
}
