//! A mock service and futures polled by the test.

use std::collections::VecDeque;
use std::error::Error;
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker, ready};

use http::{Request, Response};
use tidegate::event::Event;
use tidegate::{Limiter, LimiterBuilder, ManualClock};

use crate::drive::gate;
use tokio::sync::oneshot;
use tower::Service;

pub(crate) type BoxError = Box<dyn Error + Send + Sync>;
pub(crate) type Answer = Result<Response<&'static str>, BoxError>;

pub(crate) const KEY: &str = "api.example.com";

/// A service whose calls are answered by the test. Every clone has to become ready itself; calling
/// one that is not ready panics.
#[derive(Default)]
pub(crate) struct Mock {
    shared: Arc<Mutex<Shared>>,
    is_ready: bool,
}

#[derive(Default)]
struct Shared {
    /// How many may become ready; `None`: all.
    places: Option<usize>,
    broken: bool,
    calls: VecDeque<Call>,
}

/// A received request.
pub(crate) struct Call {
    pub(crate) request: Request<&'static str>,
    answer: oneshot::Sender<Answer>,
}

impl Call {
    pub(crate) fn answer(self, answer: Answer) {
        assert!(self.answer.send(answer).is_ok(), "the caller has gone");
    }

    pub(crate) fn status(self, status: u16) {
        self.with_headers(status, &[]);
    }

    pub(crate) fn with_headers(self, status: u16, fields: &[(&str, &str)]) {
        let mut response = Response::builder().status(status);
        for &(name, value) in fields {
            response = response.header(name, value);
        }
        self.answer(Ok(response.body("body").unwrap()));
    }

    pub(crate) fn is_cancelled(&self) -> bool {
        self.answer.is_closed()
    }
}

impl Mock {
    pub(crate) fn allow(&self, places: usize) {
        self.shared.lock().unwrap().places = Some(places);
    }

    pub(crate) fn break_down(&self) {
        self.shared.lock().unwrap().broken = true;
    }

    /// The next received request.
    pub(crate) fn next_call(&self) -> Option<Call> {
        self.shared.lock().unwrap().calls.pop_front()
    }
}

impl Clone for Mock {
    fn clone(&self) -> Self {
        Self {
            shared: Arc::clone(&self.shared),
            is_ready: false,
        }
    }
}

impl Service<Request<&'static str>> for Mock {
    type Response = Response<&'static str>;
    type Error = BoxError;
    type Future = MockFuture;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        let mut shared = self.shared.lock().unwrap();
        if shared.broken {
            return Poll::Ready(Err("broken for good".into()));
        }
        if !self.is_ready {
            match &mut shared.places {
                Some(0) => return Poll::Pending,
                Some(places) => *places -= 1,
                None => {}
            }
            self.is_ready = true;
        }
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<&'static str>) -> MockFuture {
        assert!(self.is_ready, "called without having become ready");
        self.is_ready = false;
        let (answer, answered) = oneshot::channel();
        let mut shared = self.shared.lock().unwrap();
        shared.calls.push_back(Call { request, answer });
        MockFuture(answered)
    }
}

pub(crate) struct MockFuture(oneshot::Receiver<Answer>);

impl Future for MockFuture {
    type Output = Answer;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Answer> {
        let answer = ready!(Pin::new(&mut self.0).poll(context));
        Poll::Ready(answer.expect("every call is answered"))
    }
}

/// A future polled by the test.
pub(crate) struct Task<F: Future> {
    future: Pin<Box<F>>,
    woken: Arc<Woken>,
    seen: usize,
}

#[derive(Default)]
struct Woken(AtomicUsize);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

impl<F: Future> Task<F> {
    pub(crate) fn new(future: F) -> Self {
        Self {
            future: Box::pin(future),
            woken: Arc::default(),
            seen: 0,
        }
    }

    pub(crate) fn poll(&mut self) -> Poll<F::Output> {
        self.seen = self.woken.0.load(Ordering::SeqCst);
        let waker = Waker::from(Arc::clone(&self.woken));
        self.future.as_mut().poll(&mut Context::from_waker(&waker))
    }

    pub(crate) fn is_woken(&self) -> bool {
        self.woken.0.load(Ordering::SeqCst) > self.seen
    }

    /// Its output, which must be ready.
    pub(crate) fn output(&mut self) -> F::Output {
        match self.poll() {
            Poll::Ready(output) => output,
            Poll::Pending => panic!("not ready yet"),
        }
    }
}

/// A rate of one per second that does not move.
pub(crate) const SLOW: &[(&str, &str)] = &[("strategy", "fixed"), ("initial_rate", "1")];

pub(crate) fn builder(set: &[(&str, &str)]) -> (ManualClock, LimiterBuilder) {
    let clock = ManualClock::new();
    let builder = Limiter::builder().gate(gate(set)).clock(clock.clock());
    (clock, builder)
}

pub(crate) fn limiter(set: &[(&str, &str)]) -> (ManualClock, Limiter) {
    let (clock, builder) = builder(set);
    (clock, builder.build())
}

/// The events of a limiter: the name of each, with a detail.
#[derive(Clone, Default)]
pub(crate) struct EventNames(Arc<Mutex<Vec<String>>>);

impl EventNames {
    pub(crate) fn listener(
        &self,
    ) -> impl Fn(policy::time::Timestamp, &Event<'_>) + Send + Sync + 'static {
        let events = self.clone();
        move |_, event| {
            let detail = match event {
                Event::Settled { verdict, .. } => {
                    verdict.map_or("none", |verdict| verdict.as_str())
                }
                _ => "",
            };
            let name = format!("{} {detail}", event.name());
            events.0.lock().unwrap().push(name.trim_end().to_owned());
        }
    }

    pub(crate) fn take(&self) -> Vec<String> {
        std::mem::take(&mut self.0.lock().unwrap())
    }
}

pub(crate) fn get(uri: &str) -> Request<&'static str> {
    Request::get(uri).body("").unwrap()
}
