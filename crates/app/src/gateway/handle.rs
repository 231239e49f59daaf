//! One request, from its head to the head of its answer.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode, Uri, header};
use hyper::body::{Body, Incoming};
use policy::classify::{Because, Judgement};
use policy::item::ItemKind;
use policy::outcome::{Failure, Outcome, Phase, Verdict};
use tidegate::call::TrailStep;
use tidegate::http::Head;
use tidegate::pool::Endpoint;
use tidegate::{Answered, Attempt, LadderSettings};

use super::answer::{self, Finish};
use super::body::ServedBody;
use super::connection::Serving;
use super::cross_site::{Source, is_preflight, preflight_headers};
use super::discard::discard;
use super::headers;
use super::path;
use super::patience;
use super::problem::Own;
use super::routes::{Route, Routes};
use super::worker::Worker;
use crate::state::UpstreamEndpoint;
use crate::upstream::{AnswerBody, Kept, SendError, Trouble};

/// What came of one attempt.
#[derive(Debug)]
pub(super) struct Got {
    pub(super) endpoint: Arc<Endpoint<UpstreamEndpoint>>,
    pub(super) what: What,
}

#[derive(Debug)]
#[expect(
    clippy::large_enum_variant,
    reason = "nearly all of them are answers, and there is one per request"
)]
pub(super) enum What {
    /// An answer.
    Answer(Response<AnswerBody>),
    /// None, and why.
    Failed(SendError),
    /// Nothing was sent: its path would be too long behind the endpoint's own.
    PathTooLong,
}

/// A request whose head was understood.
struct Wanted {
    method: Method,
    /// Behind the pool's name.
    rest: Box<str>,
    headers: HeaderMap,
    body: Kept,
    /// Its body comes without being asked for.
    is_body_coming: bool,
    kind: ItemKind,
}

/// Answers one request.
pub(super) async fn handle(
    worker: &Worker,
    serving: &Serving,
    request: Request<Incoming>,
) -> Response<ServedBody> {
    let id = worker.name_request();
    let routes = worker.front.routes();
    let mut finish = Finish::new(worker, id, &request);
    let source = worker.front.guard().origins.source(&request);
    let (head, body) = request.into_parts();
    let is_body_coming = !head.headers.contains_key(header::EXPECT);
    let request = Request::from_parts(head, ());
    let mut response = match understand(worker, &routes, serving, &source, request) {
        Ok(Asked::Pool(route, wanted)) => {
            let wanted = Wanted {
                body: Kept::new(body, routes.bounds()),
                is_body_coming,
                ..wanted
            };
            finish.route = Some(Arc::clone(&route));
            send(worker, &routes, &route, wanted, finish).await
        }
        Ok(Asked::Preflight(headers)) => finish.preflight(headers),
        Err(own) => {
            if is_body_coming {
                discard(body);
            }
            finish.own(&own)
        }
    };
    let guard = worker.front.guard();
    guard.origins.apply(&source, response.headers_mut());
    response
}

/// What a request asks for.
enum Asked {
    /// Something of a pool.
    Pool(Arc<Route>, Wanted),
    /// Whether a page may send a request; with the headers that say so.
    Preflight(HeaderMap),
}

/// What is asked for, if it may be; its body is still to come.
fn understand(
    worker: &Worker,
    routes: &Routes,
    serving: &Serving,
    source: &Source,
    request: Request<()>,
) -> Result<Asked, Own> {
    if serving.has_conflicting_framing() {
        return Err(Own::BadRequest);
    }
    worker.front.guard().check(&request, source)?;
    if is_preflight(&request) {
        return Ok(Asked::Preflight(preflight_headers(request.headers())));
    }
    if worker.front.is_draining() {
        return Err(Own::Draining);
    }
    let (head, ()) = request.into_parts();
    let path = head.uri.path_and_query().map_or("/", |path| path.as_str());
    let split = path::split(path).ok_or_else(|| no_route(routes))?;
    let route = routes.route(split.pool).ok_or_else(|| no_route(routes))?;
    let wait = patience::asked(&head.headers).map_err(|_| Own::BadWait)?;
    let rest = split.rest.into();
    let mut headers = head.headers;
    if worker.front.has_passed(&headers) {
        return Err(Own::Loop);
    }
    let bounds = routes.bounds();
    if let (Some(most), Some(length)) = (bounds.most, declared_length(&headers))
        && length > most
    {
        return Err(Own::BodyTooLarge);
    }
    let key = headers.get("idempotency-key");
    let kind = ItemKind {
        has_idempotency_key: key.is_some_and(|key| !key.is_empty()),
        retry_unsafe: route.retry_unsafe,
        expires_after: Some(wait.unwrap_or(route.max_wait).max(LEAST_WAIT)),
        ..ItemKind::of(head.method.as_str())
    };
    headers::clean_request(&mut headers);
    headers.append(header::VIA, worker.front.via().clone());
    let wanted = Wanted {
        method: head.method,
        rest,
        headers,
        body: Kept::NONE,
        is_body_coming: false,
        kind,
    };
    Ok(Asked::Pool(Arc::clone(route), wanted))
}

/// Who does not want to wait still has the time that it takes to ask.
const LEAST_WAIT: Duration = Duration::from_millis(10);

fn declared_length(headers: &HeaderMap) -> Option<u64> {
    headers
        .get(header::CONTENT_LENGTH)?
        .to_str()
        .ok()?
        .parse()
        .ok()
}

/// Whoever misspells a pool is told what there is.
fn no_route(routes: &Routes) -> Own {
    let names: Vec<&str> = routes.routes().map(|(name, _)| name).take(20).collect();
    Own::NoRoute(match names.as_slice() {
        [] => "no pool is configured: add `[pool.NAME]` to the settings".to_owned(),
        names => format!("expected the path of a pool: /{}/…", names.join("/…, /")),
    })
}

/// Sends it, as often as that makes sense.
async fn send(
    worker: &Worker,
    routes: &Routes,
    route: &Route,
    wanted: Wanted,
    finish: Finish<'_>,
) -> Response<ServedBody> {
    let call = route.pool.call().give_up_after(None).in_line_only();
    let log = |step: &TrailStep| finish.tell(step);
    let call = call.kind(wanted.kind).backoff(&route.backoff).watch(&log);
    let call = match &route.token {
        Some(token) => {
            // Rare, so it need not make every request larger.
            Box::pin(token.prepare()).await;
            call.credential(token.refresh())
        }
        None => call,
    };
    let run = call.run(async |attempt, endpoint| {
        attempt_once(worker, routes, route, &wanted, attempt, endpoint).await
    });
    let ended = {
        let mut run = pin!(run);
        poll_fn(|context| {
            if let Poll::Ready(ended) = run.as_mut().poll(context) {
                return Poll::Ready(Ok(ended));
            }
            match wanted.is_body_coming {
                true => wanted.body.poll_ahead(context).map(Err),
                false => Poll::Pending,
            }
        })
        .await
    };
    let answer = match ended {
        Ok(ended) => answer::finish(ended, &wanted.body, finish),
        Err(trouble) => finish.own(&trouble.into()),
    };
    if let (true, Some(unread)) = (wanted.is_body_coming, wanted.body.into_unread()) {
        discard(unread);
    }
    answer
}

/// One attempt at one endpoint, and what it means.
async fn attempt_once(
    worker: &Worker,
    routes: &Routes,
    route: &Route,
    wanted: &Wanted,
    attempt: Attempt,
    endpoint: Arc<Endpoint<UpstreamEndpoint>>,
) -> Answered<Got> {
    let remote = endpoint.data();
    let Some(path) = path::join(&remote.base, &wanted.rest) else {
        return Answered::unsent(Got {
            endpoint,
            what: What::PathTooLong,
        });
    };
    let uri = Uri::from(path);
    let make = || {
        let request = request_for(&uri, remote, route, wanted);
        (request, wanted.body.clone())
    };
    let sent = routes
        .upstream()
        .send(
            worker.number,
            &attempt,
            &remote.target,
            routes.times(),
            make,
        )
        .await;
    let answered = match sent {
        Ok(answer) => answered(worker, route, &attempt, Arc::clone(&endpoint), answer).await,
        Err(error) => failed(&attempt, Arc::clone(&endpoint), error),
    };
    if let Some(outcome) = &answered.outcome {
        remote.metrics.attempt(answered.verdict, outcome.latency);
    }
    if wanted.body.is_resendable() {
        answered
    } else {
        answered.last()
    }
}

fn request_for(
    uri: &Uri,
    remote: &UpstreamEndpoint,
    route: &Route,
    wanted: &Wanted,
) -> Request<crate::upstream::RequestBody> {
    let mut request = Request::new(wanted.body.body());
    *request.method_mut() = wanted.method.clone();
    *request.uri_mut() = uri.clone();
    *request.headers_mut() = wanted.headers.clone();
    remote.apply_headers(request.headers_mut());
    if let Some(token) = &route.token {
        token.apply(request.headers_mut());
    }
    request
}

/// What an answer means. Of one that is not good the beginning is read: the body may say more than
/// the head, and the connection is free while the next attempt waits.
async fn answered(
    worker: &Worker,
    route: &Route,
    attempt: &Attempt,
    endpoint: Arc<Endpoint<UpstreamEndpoint>>,
    mut answer: Response<AnswerBody>,
) -> Answered<Got> {
    let latency = attempt.elapsed();
    let wall = worker.front.state.limiter().clock().wall();
    let is_read = is_worth_reading(&answer);
    let (outcome, verdict, text) = {
        let status = answer.status();
        let headers = std::mem::take(answer.headers_mut());
        let body = match is_read {
            true => answer.body_mut().beginning(MOST_READ).await,
            false => &[],
        };
        let head = Head::new(status, &headers).with_body(body);
        let outcome = head.outcome(latency, wall);
        let Judgement { verdict, because } = head.judge(&endpoint.data().rules, &outcome.hint);
        let text = match verdict {
            None | Some(Verdict::Success) => String::new(),
            Some(_) => describe_error(status, because, body, &route.pool.protection()),
        };
        *answer.headers_mut() = headers;
        (outcome, verdict, text)
    };
    let has_body = !answer.body().is_end_stream();
    let got = Got {
        endpoint,
        what: What::Answer(answer),
    };
    Answered {
        text,
        has_body,
        ..Answered::judged(got, outcome, verdict)
    }
}

/// As much of a body as policies look at.
const MOST_READ: usize = 64 << 10;

/// Is a look at the body needed to know what an answer means? For errors it is. Of a success only a
/// short JSON document may say that it is none.
fn is_worth_reading(answer: &Response<AnswerBody>) -> bool {
    let content_type = answer.headers().get(header::CONTENT_TYPE);
    let content_type = content_type.map_or(&b""[..], HeaderValue::as_bytes);
    let status = answer.status();
    if status.is_client_error() || status.is_server_error() {
        return !content_type.starts_with(b"text/event-stream");
    }
    let length = declared_length(answer.headers());
    status.is_success()
        && content_type
            .windows(4)
            .any(|word| word.eq_ignore_ascii_case(b"json"))
        && length.is_some_and(|length| length <= MOST_READ as u64)
}

/// An error of an upstream as it may be stored and shown: its status, the code or words by which it
/// was judged, and the phrase of the pool's protection that it contains. These are our own
/// spellings; nothing else of the body is in it.
fn describe_error(
    status: StatusCode,
    because: Because,
    body: &[u8],
    protection: &LadderSettings,
) -> String {
    let phrase = protection.phrase_in(&message(body)).map(str::to_owned);
    let status = status.as_u16();
    match (because, phrase) {
        (Because::Code(code), None) => format!("HTTP {status} {code}"),
        (Because::Code(code), Some(phrase)) => format!("HTTP {status} {code}: {phrase}"),
        (_, Some(phrase)) => format!("HTTP {status}: {phrase}"),
        // Protection looks for its phrases in this text, and only in the beginning of a message.
        (Because::Text(words), None) if protection.phrase_in(words).is_none() => {
            format!("HTTP {status}: {words}")
        }
        _ => format!("HTTP {status}"),
    }
}

/// The beginning of what a server says about an error, in which phrases are looked for.
fn message(body: &[u8]) -> String {
    let parsed: Option<serde_json::Value> = serde_json::from_slice(body).ok();
    let pointers = [
        "/error/message",
        "/message",
        "/error_description",
        "/detail",
        "/error",
        "/title",
    ];
    let message = parsed.as_ref().and_then(|json| {
        let mut texts = pointers
            .iter()
            .filter_map(|pointer| json.pointer(pointer)?.as_str());
        texts.next()
    });
    match message {
        Some(message) => message.chars().take(MAX_MESSAGE).collect(),
        None => {
            let start = String::from_utf8_lossy(&body[..body.len().min(2 * MAX_MESSAGE)]);
            start.chars().take(MAX_MESSAGE).collect()
        }
    }
}

/// Phrases count in the first 200 characters of a message.
const MAX_MESSAGE: usize = 200;

/// What it means that no answer came.
fn failed(
    attempt: &Attempt,
    endpoint: Arc<Endpoint<UpstreamEndpoint>>,
    error: SendError,
) -> Answered<Got> {
    let trouble = error.trouble;
    let text = error.what.clone();
    let got = Got {
        endpoint,
        what: What::Failed(error),
    };
    match trouble {
        Trouble::Failed { failure, phase } => {
            let outcome = Outcome::failure(failure, phase, attempt.elapsed());
            Answered {
                text,
                ..Answered::new(got, outcome)
            }
        }
        Trouble::NotAllowed { .. } | Trouble::NoDescriptors => Answered::unsent(got),
        // The server has seen some of it, so its permit is used up; but nobody learns anything.
        Trouble::Body => {
            let outcome = Outcome::failure(Failure::Reset, Phase::Sending, attempt.elapsed());
            Answered::judged(got, outcome, None)
        }
    }
}
