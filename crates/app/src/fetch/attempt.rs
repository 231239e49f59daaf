//! One attempt: the request, the response, and what follows from it.

use std::rc::Rc;

use http::header::{
    ACCEPT, ACCEPT_ENCODING, HOST, IF_MODIFIED_SINCE, IF_NONE_MATCH, LOCATION, USER_AGENT,
};
use http::{HeaderMap, HeaderName, HeaderValue, Request, Response, StatusCode, Uri};
use policy::gate::Reason;
use policy::item::{Step, TerminalReason};
use policy::outcome::{Failure, Outcome, Phase, Verdict};
use policy::time::Timestamp;
use tidegate::Permit;
use url::Position;

use super::body::{Body, BodyProblem, ReadBody};
use super::decode;
use super::engine::Engine;
use super::item::{FetchItem, Purpose};
use super::lane::Lane;
use super::record::UrlError;
use super::slots::Slot;
use super::spans::SentAttempt;
use super::url::resolve;
use crate::exchange::{
    ReplayableBody, RequestBody, SendErrorKind, SendResult, Target, UpstreamBody,
};
use crate::observe::TRACEPARENT;

/// Makes the permitted attempt in a task of its own.
pub(super) fn spawn(
    engine: &Rc<Engine>,
    lane: &Rc<Lane>,
    item: Box<FetchItem>,
    permit: Permit<'static>,
    slot: Slot,
) {
    let (engine, lane) = (Rc::clone(engine), Rc::clone(lane));
    let task = async move {
        let _guard = engine.guard();
        let attempt = Attempt {
            engine: &engine,
            lane: &lane,
        };
        attempt.run(item, permit).await;
        drop(slot);
        engine.end_attempt();
    };
    tokio::task::spawn_local(task);
}

struct Attempt<'a> {
    engine: &'a Rc<Engine>,
    lane: &'a Rc<Lane>,
}

/// What came of an attempt, beyond its outcome.
enum Received {
    /// A response whose body was read.
    Body(ReadBody),
    /// A response whose body says nothing.
    Head,
    Redirect(String),
    /// 304: the stored body is the present one.
    NotModified,
    /// The body could not be read.
    Problem(BodyProblem),
    /// There was no response.
    Nothing,
}

impl Attempt<'_> {
    async fn run(&self, mut item: Box<FetchItem>, permit: Permit<'static>) {
        let (engine, lane) = (self.engine, self.lane);
        let clock = engine.core.clock();
        if let Err(until) = permit.count_attempt(item.item.sent() > 0) {
            permit.give_back();
            return self.again_later(item, Reason::RetryBudget, until);
        }
        let trust = engine.trust(&item);
        let destination = match lane.destination(engine, &item.url, trust) {
            Ok(destination) => destination,
            Err(error) => {
                permit.give_back();
                return engine.fail(item, UrlError::NotSent, Some(error.to_string()));
            }
        };
        let now = clock.now();
        let waited = item.end_wait(now);
        let sent = SentAttempt { waited, at: now };
        let attempt = permit.attempt(item.item.sent() + 1);
        let target = Target {
            destination: &destination,
            rules: &lane.rules,
            phrase_in: |_: &str| None,
            metrics: &lane.metrics,
            worker: engine.worker,
        };
        let uri: Uri = match item.url[Position::BeforePath..Position::AfterQuery].parse() {
            Ok(uri) => uri,
            Err(_) => {
                permit.give_back();
                return engine.fail(item, UrlError::BadUrl, None);
            }
        };
        let make = || {
            let request = self.request(&item, uri.clone(), destination.authority());
            (request, ReplayableBody::NONE)
        };
        let mut result = engine.exchange.attempt(&attempt, target, make).await;
        let Some(outcome) = result.outcome.take() else {
            permit.give_back();
            return self.unsent(item, &result.value);
        };
        let verdict = result.verdict;
        item.sent += 1;
        lane.note(verdict, clock.now());
        let response = result.value.ok();
        item.status = response.as_ref().map(|response| response.status().as_u16());
        item.latency = response.is_some().then_some(outcome.latency);
        // Before the gate learns of it: the report takes holds only of hosts that it knows.
        engine.attempted(&lane.key, verdict, item.status);
        let in_flight = permit.settle_head(&outcome, verdict);
        let verdict = in_flight.verdict();
        let received = match response {
            Some(response) => self.receive(&item, *response, verdict).await,
            None => Received::Nothing,
        };
        drop(in_flight);
        self.conclude(item, sent, outcome, verdict, received, result.text);
    }

    fn request(&self, item: &FetchItem, uri: Uri, authority: &HeaderValue) -> Request<RequestBody> {
        let engine = self.engine;
        let mut request = Request::new(RequestBody::EMPTY);
        *request.uri_mut() = uri;
        let headers = request.headers_mut();
        headers.insert(HOST, authority.clone());
        headers.insert(USER_AGENT, engine.user_agent.clone());
        headers.insert(ACCEPT, HeaderValue::from_static("*/*"));
        let encodings = HeaderValue::from_static(decode::ACCEPT_ENCODING);
        headers.insert(ACCEPT_ENCODING, encodings);
        if !engine.headers.is_empty() && engine.is_given(&item.url) {
            for name in engine.headers.keys() {
                headers.remove(name);
            }
            for (name, value) in &engine.headers {
                headers.append(name.clone(), value.clone());
            }
        }
        if let Some(trace) = &item.trace {
            headers.insert(TRACEPARENT, trace.header(item.sent + 1));
        }
        if !item.is_robots()
            && let Some(validators) = engine.validators(item.url.as_str())
        {
            conditional(headers, IF_NONE_MATCH, validators.etag);
            conditional(headers, IF_MODIFIED_SINCE, validators.last_modified);
        }
        request
    }

    /// An attempt that was not made.
    fn unsent(&self, item: Box<FetchItem>, result: &SendResult) {
        let error = result.as_ref().err();
        match error.map(|error| error.kind) {
            Some(SendErrorKind::NoDescriptors | SendErrorKind::NoStream) => {
                self.again_later(item, Reason::InFlight, None)
            }
            Some(SendErrorKind::NotAllowed { .. }) => {
                let message = error.map(|error| error.message.clone());
                self.engine.fail(item, UrlError::AddressNotAllowed, message);
            }
            _ => self.engine.fail(item, UrlError::NotSent, None),
        }
    }

    /// It was not sent, and may be later.
    fn again_later(&self, mut item: Box<FetchItem>, reason: Reason, until: Option<Timestamp>) {
        let now = self.engine.core.clock().now();
        item.item.gate_succeeded(self.lane.last_success());
        let step = {
            let random = &mut *self.engine.random.borrow_mut();
            item.item
                .refused(&self.engine.backoff, reason, until, now, random)
        };
        self.follow(item, step, None);
    }

    /// Reads what is needed of a response.
    async fn receive(
        &self,
        item: &FetchItem,
        response: Response<UpstreamBody>,
        verdict: Option<Verdict>,
    ) -> Received {
        let (head, body) = response.into_parts();
        let status = head.status;
        if let Some(location) = redirect_target(status, &head.headers) {
            return Received::Redirect(location);
        }
        if status == StatusCode::NOT_MODIFIED {
            return Received::NotModified;
        }
        if !matches!(verdict, None | Some(Verdict::Success)) {
            return Received::Head;
        }
        let mut sink = match Body::new(self.engine, item, &head.headers) {
            Ok(sink) => sink,
            Err(problem) => return Received::Problem(problem),
        };
        let read = sink.read(self.engine, item, body).await;
        match read.and_then(|()| sink.finish(&head.headers)) {
            Ok(read) => Received::Body(read),
            Err(problem) => Received::Problem(problem),
        }
    }

    /// Decides what follows.
    fn conclude(
        &self,
        mut item: Box<FetchItem>,
        sent: SentAttempt,
        outcome: Outcome,
        verdict: Option<Verdict>,
        received: Received,
        text: String,
    ) {
        let engine = self.engine;
        let (outcome, verdict) = match &received {
            // The head came, and the body broke off: for the item that is no response.
            Received::Problem(BodyProblem::Broken(_)) => {
                let outcome = Outcome::failure(Failure::Reset, Phase::Receiving, outcome.latency);
                (outcome, Some(Verdict::Unreachable))
            }
            _ => (outcome, verdict),
        };
        let now = engine.core.clock().now();
        item.waits_since = now;
        item.item.gate_succeeded(self.lane.last_success());
        let step = {
            let random = &mut *engine.random.borrow_mut();
            item.item
                .after(&engine.backoff, &outcome, verdict, now, random)
        };
        engine.record_attempt(&item, &self.lane.key, sent, &outcome, verdict, step);
        if step != Step::Done {
            let text = match received {
                Received::Problem(problem) => Some(problem.to_string()),
                _ => Some(text),
            };
            return self.follow(item, step, text);
        }
        match received {
            Received::Redirect(location) => self.redirect(item, &location),
            Received::Problem(problem) => {
                engine.fail(item, problem.error(), Some(problem.to_string()));
            }
            Received::NotModified => engine.not_modified(item),
            Received::Body(body) => self.received(item, body),
            Received::Head | Received::Nothing => self.received(item, ReadBody::default()),
        }
    }

    /// Sends it again at its time, or ends it.
    fn follow(&self, item: Box<FetchItem>, step: Step, text: Option<String>) {
        match step {
            Step::SendAt {
                at,
                delay,
                source,
                reason,
            } => {
                let metrics = self.engine.core.metrics();
                metrics.item_retry(delay, source, reason);
                self.engine.send_again(at, item);
            }
            step => {
                let reason = step.terminal_reason().unwrap_or(TerminalReason::AuthFailed);
                self.engine.fail(item, UrlError::Item(reason), text);
            }
        }
    }

    fn redirect(&self, mut item: Box<FetchItem>, location: &str) {
        let engine = self.engine;
        let Some(target) = resolve(&item.url, location) else {
            let message = "the redirect leads to no URL that can be requested";
            return engine.fail(item, UrlError::BadRedirect, Some(message.to_owned()));
        };
        let from = engine.hash(item.url.as_str());
        item.visited.push(from);
        let max_redirects = match item.purpose {
            Purpose::Robots(..) => MAX_ROBOTS_REDIRECTS,
            _ => engine.settings.max_redirects as usize,
        };
        let has_loop = item.visited.contains(&engine.hash(target.as_str()));
        item.url = target;
        if has_loop {
            return engine.fail(item, UrlError::RedirectLoop, None);
        }
        if item.visited.len() > max_redirects {
            return engine.fail(item, UrlError::TooManyRedirects, None);
        }
        engine.redirect(item);
    }

    fn received(&self, item: Box<FetchItem>, body: ReadBody) {
        match &item.purpose {
            Purpose::Robots(..) => {
                let text = body.robots.unwrap_or_default();
                self.engine.complete_robots(&item, &text);
            }
            Purpose::Page(_) | Purpose::Sitemap(_) => self.engine.complete(item, body),
        }
    }
}

/// RFC 9309 asks for at least five.
const MAX_ROBOTS_REDIRECTS: usize = 5;

fn redirect_target(status: StatusCode, headers: &HeaderMap) -> Option<String> {
    let is_redirect = matches!(status.as_u16(), 301 | 302 | 303 | 307 | 308);
    let location = headers.get(LOCATION).filter(|_| is_redirect)?;
    // Servers send UTF-8 where escapes belong.
    Some(String::from_utf8_lossy(location.as_bytes()).into_owned())
}

fn conditional(headers: &mut HeaderMap, name: HeaderName, value: Option<HeaderValue>) {
    if let Some(value) = value {
        headers.insert(name, value);
    }
}
