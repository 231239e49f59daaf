//! Delivers one claimed operation: sends it, judges the response and settles the claim.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{ETAG, HOST};
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Uri};
use http_body_util::{BodyExt, Limited};
use policy::backoff::BackoffSettings;
use policy::classify::Rule;
use policy::item::{DelaySource, Item, ItemKind, ItemRecord, ResendReason, Step, TerminalReason};
use policy::outcome::{Outcome, Phase, UpstreamResponse, Verdict};
use policy::time::{Timestamp, WallTime};
use store::operations::{
    AttemptRecord, ClaimId, ClaimResult, Claimed, Counters, Headers, Settlement, StoredConflict,
    StoredOperation, StoredRequest, StoredResponse,
};
use tidegate::{AttemptResult, Refresh};
use url::{Position, Url};

use super::conflict::FoundConflict;
use super::source::{Admitted, Source};
use super::{STORE_RETRY, Worker, report};
use crate::exchange::cost::{COST, UsageScanner, parse_cost};
use crate::exchange::path;
use crate::exchange::{
    Destination, Exchange, ReplayableBody, RequestBody, SendErrorKind, SendResult, Target, Trust,
};
use crate::log::{ItemId, Retry};
use crate::metrics::KeyMetrics;
use crate::observe::{
    AttemptSummary, FinishedAttempt, FinishedWork, Observers, StartTime, TRACEPARENT, TraceContext,
    TraceParent,
};
use crate::settings::{OperationType, WEBHOOK_OPERATION, Webhook};
use crate::state::{AccessToken, Configuration, State};

/// Sends an operation under the permit that it was claimed with.
pub(super) async fn deliver<'a>(
    worker: &'a Worker,
    source: &'a Source,
    admitted: Admitted<'_>,
    claimed: &'a Claimed,
) -> Delivered<'a> {
    let delivery = Delivery::new(worker, source, claimed);
    let mut settlement = delivery.run(admitted).await;
    delivery.complete_conflict(&mut settlement).await;
    Delivered {
        worker,
        trace: delivery.trace,
        claim: claimed.claim,
        id: &claimed.operation.id,
        destination: &claimed.operation.destination,
        settlement,
    }
}

/// An operation whose claim has to be settled.
pub(super) struct Delivered<'a> {
    worker: &'a Worker,
    trace: Option<TraceContext>,
    claim: ClaimId,
    id: &'a str,
    destination: &'a str,
    settlement: Settlement,
}

impl Delivered<'_> {
    /// Stores how the claim ended, and announces it.
    pub(super) async fn settle(self) {
        let state = &self.worker.state;
        match settle(self.worker, self.claim, self.settlement).await {
            Some(operation) => {
                if let Some(trace) = self.trace {
                    record(state, trace, &operation);
                }
                state.announce(&operation);
            }
            None => {
                state.core().metrics().claim_lost();
                state.log().claim_lost(self.id, self.destination);
            }
        }
    }
}

/// One operation while it is claimed.
struct Delivery<'a> {
    worker: &'a Worker,
    source: &'a Source,
    configuration: Arc<Configuration>,
    claimed: &'a Claimed,
    credential: Option<Arc<AccessToken>>,
    /// If traces are exported.
    trace: Option<TraceContext>,
}

/// What came of one attempt.
enum Sent {
    /// It was sent, and this is to be done.
    Step {
        step: Step,
        response: Option<ReadResponse>,
        /// The generation of the credential that it was sent with.
        generation: u64,
    },
    /// It was not sent, and will not be.
    Failed(TerminalReason),
    /// It was not sent, and may be at this time.
    NotYet(WallTime),
}

impl<'a> Delivery<'a> {
    fn new(worker: &'a Worker, source: &'a Source, claimed: &'a Claimed) -> Self {
        let configuration = worker.state.configuration();
        let credential = claimed.operation.credential.as_deref();
        let credential = credential.and_then(|name| configuration.credential(name).cloned());
        Self {
            worker,
            source,
            configuration,
            claimed,
            credential,
            trace: trace_context(worker.state.core().observers(), claimed),
        }
    }

    fn operation(&self) -> &StoredOperation {
        &self.claimed.operation
    }

    fn request(&self) -> &StoredRequest {
        &self.claimed.request
    }

    fn operation_type(&self) -> &OperationType {
        let settings = self.configuration.settings();
        settings.operation(&self.operation().kind)
    }

    fn backoff(&self) -> &BackoffSettings {
        let backoffs = &self.configuration.settings().backoffs;
        let own = self.operation().backoff.as_deref();
        own.and_then(|name| backoffs.get(name))
            // Settings refer only to backoffs that exist.
            .unwrap_or_else(|| &backoffs[&self.operation_type().backoff])
    }

    /// Sends it until it is done, has to wait or has failed.
    async fn run(&self, admitted: Admitted<'_>) -> Settlement {
        let mut item = self.item();
        let mut attempts = Vec::new();
        let mut next = Some(admitted);
        let result = loop {
            let admitted = match next.take() {
                Some(admitted) => admitted,
                None => match self
                    .source
                    .ask(self.worker, cost(self.request()).unwrap_or(1))
                    .await
                {
                    Ok(admitted) => admitted,
                    Err(_) => break ClaimResult::Retry(self.worker.now()),
                },
            };
            match self.send(&mut item, admitted, &mut attempts).await {
                Sent::Failed(reason) => break ClaimResult::Failed(reason),
                Sent::NotYet(at) => break ClaimResult::Retry(at),
                Sent::Step {
                    step,
                    response,
                    generation,
                } => {
                    let step = self.refresh(&mut item, step, generation).await;
                    match self.result(step, &item, response) {
                        Some(result) => break result,
                        None => continue,
                    }
                }
            }
        };
        Settlement {
            now: self.worker.now(),
            result,
            counters: item.record(self.worker.state.clock().now()).into(),
            attempts,
        }
    }

    /// The item as it was stored.
    fn item(&self) -> Item {
        let operation = self.operation();
        let now = self.worker.now();
        let kind = ItemKind {
            has_idempotency_key: true,
            ..ItemKind::of(&self.request().method)
        };
        let Counters {
            sent,
            attempts,
            directed_waits,
            refreshed,
        } = operation.counters;
        let record = ItemRecord {
            sent,
            attempts,
            directed_waits,
            refreshed,
            next_in: Duration::ZERO,
            expires_in: Some(now.until(operation.expires_at).unwrap_or_default()),
            gives_up_in: None,
        };
        Item::restore(kind, &record, self.worker.state.clock().now())
    }

    /// Makes one attempt.
    async fn send(
        &self,
        item: &mut Item,
        admitted: Admitted<'_>,
        attempts: &mut Vec<AttemptRecord>,
    ) -> Sent {
        let clock = self.worker.state.clock();
        if let Err(until) = admitted.count_attempt(item.sent() > 0) {
            admitted.give_back();
            let until = until.map_or_else(
                || self.worker.now() + RETRY_BUDGET_WAIT,
                |at| clock.wall_at(at),
            );
            return Sent::NotYet(until);
        }
        if let Some(credential) = &self.credential {
            credential.prepare().await;
        }
        let credential = self.credential.as_ref();
        let generation = credential.map_or(0, |credential| credential.refresh().generation());
        let at = self.worker.now();
        let due = self.operation().next_at.unwrap_or(at);
        let attempt = admitted.attempt(item.sent() + 1);
        let key = self.trace.is_some().then(|| self.key(&admitted));
        let answered = match self.exchange(&attempt, &admitted).await {
            Ok(answered) => answered,
            Err(sent) => {
                admitted.give_back();
                return sent;
            }
        };
        let is_rejected = self.is_rejected(item, &answered);
        let Some(outcome) = answered.outcome else {
            admitted.give_back();
            return self.unsent(&answered.value);
        };
        let other_endpoint = self.other_endpoint(&admitted, answered.verdict);
        let is_quota = answered.verdict == Some(Verdict::QuotaExhausted);
        let admitted = match is_rejected && !is_quota {
            true => admitted.credential_rejected(),
            false => admitted,
        };
        let in_flight = admitted.settle(&outcome, answered.verdict, &answered.text);
        let verdict = in_flight.verdict();
        let waited = due.until(at).unwrap_or_default();
        let ended = clock.now();
        attempts.push(AttemptRecord {
            at,
            phase: phase(&outcome).as_str().to_owned(),
            status: status(&outcome),
            latency: outcome.latency,
            waited,
            reason: reason(&outcome, verdict).to_owned(),
        });
        let response = self.read(answered.value).await;
        if let Some(cost) = cost(self.request())
            && verdict == Some(Verdict::Success)
        {
            let used = response.as_ref().and_then(ReadResponse::used);
            in_flight.correct_cost(used.unwrap_or(cost));
        }
        drop(in_flight);
        let random = &mut *self.worker.random.borrow_mut();
        let now = clock.now();
        let moves_on = is_rejected && verdict == answered.verdict && self.has_endpoint_left(item);
        let step = match (other_endpoint, verdict) {
            (Some(at), Some(verdict)) if moves_on => item.after_rejected(verdict, Some(at), now),
            _ => item.after_at(
                self.backoff(),
                &outcome,
                verdict,
                other_endpoint,
                now,
                random,
            ),
        };
        if let (Some(trace), Some(key)) = (self.trace, key) {
            let attempt = AttemptSummary {
                number: attempt.number,
                method: &self.request().method,
                key: &key,
                ended,
                outcome: &outcome,
                verdict,
                waited,
            };
            let observers = self.worker.state.core().observers();
            observers.finish_attempt(FinishedAttempt::new(trace, &attempt, step));
        }
        self.claimed_counters(item);
        Sent::Step {
            step,
            response,
            generation,
        }
    }

    /// Whether a response rejects the credential for good or the quota is used up, so that only
    /// another endpoint can help.
    fn is_rejected<T>(&self, item: &Item, answered: &AttemptResult<T>) -> bool {
        match answered.verdict {
            Some(Verdict::QuotaExhausted) => true,
            Some(Verdict::Unauthorized) if self.credential.is_some() && !item.has_refreshed() => {
                false
            }
            _ => answered.is_credential_rejected,
        }
    }

    /// Whether it was sent less often than there are endpoints that could accept it: without
    /// protection it might move from one rejected credential to another for ever.
    fn has_endpoint_left(&self, item: &Item) -> bool {
        match self.source {
            Source::Pool(pool) => {
                let sent = usize::try_from(item.sent()).unwrap_or(usize::MAX);
                sent.saturating_add(1) < pool.endpoints().len()
            }
            Source::Gate { .. } | Source::Missing => false,
        }
    }

    /// When another endpoint of the pool would take a request that failed at this one.
    fn other_endpoint(
        &self,
        admitted: &Admitted<'_>,
        verdict: Option<Verdict>,
    ) -> Option<Timestamp> {
        let (Source::Pool(pool), Some(endpoint)) = (self.source, admitted.endpoint()) else {
            return None;
        };
        let has_failed = !matches!(verdict, None | Some(Verdict::Success));
        has_failed
            .then(|| pool.other_endpoint_ready_at(endpoint))
            .flatten()
    }

    /// So that a claim that is released meanwhile does not forget its attempts.
    fn claimed_counters(&self, item: &Item) {
        let counters = item.record(self.worker.state.clock().now()).into();
        let mut claims = self.worker.claims.borrow_mut();
        if let Some(known) = claims.get_mut(&self.claimed.claim) {
            *known = counters;
        }
    }

    /// The gate that admitted an attempt.
    fn key(&self, admitted: &Admitted<'_>) -> String {
        match admitted.endpoint() {
            Some(endpoint) => endpoint.key().to_string(),
            None => self.operation().destination.clone(),
        }
    }

    /// Sends the request once.
    async fn exchange(
        &self,
        attempt: &tidegate::Attempt,
        admitted: &Admitted<'_>,
    ) -> Result<AttemptResult<SendResult>, Sent> {
        let exchange = match self.source {
            Source::Pool(pool) => self.configuration.exchange_of(pool.name()),
            Source::Gate { .. } | Source::Missing => self.configuration.exchange(),
        };
        let route = self.route(exchange, admitted)?;
        let protection = match self.source {
            Source::Pool(pool) => Some(pool.protection()),
            Source::Gate { .. } | Source::Missing => None,
        };
        let target = Target {
            destination: &route.destination,
            rules: &route.rules,
            phrase_in: |text: &str| {
                let protection = protection.as_ref()?;
                protection.phrase_in(text).map(str::to_owned)
            },
            metrics: &route.metrics,
            worker: self.worker.state.core().operations_worker(),
        };
        let make = || (self.message(&route, attempt.number), ReplayableBody::NONE);
        Ok(exchange.attempt(attempt, target, make).await)
    }

    /// The webhook of a report; a report whose webhook is configured no more is not sent.
    fn webhook(&self) -> Result<Option<&Webhook>, Sent> {
        let (operation, request) = (self.operation(), self.request());
        if operation.kind != WEBHOOK_OPERATION {
            return Ok(None);
        }
        let settings = self.configuration.settings();
        let webhook = report::webhook_of(settings, &operation.destination, &request.body);
        let disabled = Sent::Failed(TerminalReason::Disabled);
        webhook.map(Some).ok_or(disabled)
    }

    /// Where the request goes under this permit.
    fn route(&self, exchange: &Exchange, admitted: &Admitted<'_>) -> Result<Route, Sent> {
        let rejected = || Sent::Failed(TerminalReason::Rejected);
        let own_rules = self.operation_type().rules.iter();
        match (admitted.endpoint(), self.source) {
            (Some(endpoint), _) => {
                let upstream = endpoint.data();
                let path = path::split(&self.request().url)
                    .and_then(|split| path::join(&upstream.base, split.rest));
                let mut headers = HeaderMap::new();
                upstream.apply_headers(&mut headers);
                Ok(Route {
                    destination: Arc::clone(&upstream.destination),
                    uri: path.ok_or_else(rejected)?.into(),
                    rules: own_rules.chain(upstream.rules.iter()).cloned().collect(),
                    metrics: Arc::clone(&upstream.metrics),
                    headers,
                })
            }
            (None, Source::Gate { key, metrics }) => {
                let (url, trust) = match self.webhook()? {
                    Some(webhook) => (webhook.url.clone(), Trust::Operator),
                    None => {
                        let url = Url::parse(&self.request().url).map_err(|_| rejected())?;
                        (url, Trust::Untrusted)
                    }
                };
                let destination = exchange
                    .destination(&url, trust)
                    .map_err(|_| Sent::NotYet(self.worker.now() + STORE_RETRY))?;
                let mut headers = HeaderMap::new();
                headers.insert(HOST, destination.authority().clone());
                let host_rules = self.worker.state.limiter().rules(key);
                Ok(Route {
                    destination,
                    uri: url[Position::BeforePath..Position::AfterQuery]
                        .parse()
                        .map_err(|_| rejected())?,
                    rules: own_rules.chain(host_rules.iter()).cloned().collect(),
                    metrics: Arc::clone(metrics),
                    headers,
                })
            }
            (None, Source::Pool(_) | Source::Missing) => Err(rejected()),
        }
    }

    /// The request as it is sent.
    fn message(&self, route: &Route, attempt: u32) -> Request<RequestBody> {
        let stored = self.request();
        let body = Bytes::copy_from_slice(&stored.body);
        let mut request = Request::new(match body.is_empty() {
            true => RequestBody::EMPTY,
            false => RequestBody::whole(body),
        });
        *request.method_mut() = Method::from_bytes(stored.method.as_bytes()).unwrap_or_default();
        *request.uri_mut() = route.uri.clone();
        let headers = request.headers_mut();
        for (name, value) in header_pairs(&stored.headers) {
            headers.append(name, value);
        }
        for (name, value) in &route.headers {
            headers.insert(name.clone(), value.clone());
        }
        if let Some(trace) = &self.trace {
            headers.insert(TRACEPARENT, trace.header(attempt));
        }
        if let Ok(key) = HeaderValue::from_str(&self.operation().idempotency_key) {
            headers.insert(IDEMPOTENCY_KEY, key);
        }
        if let Some(credential) = &self.credential {
            credential.apply(headers);
        }
        if let Ok(Some(webhook)) = self.webhook() {
            let (id, now) = (&self.operation().id, self.worker.now());
            report::sign(headers, webhook, id, &stored.body, now);
        }
        request
    }

    /// What to do about an attempt that was not made.
    fn unsent(&self, result: &SendResult) -> Sent {
        match result {
            Err(error) if matches!(error.kind, SendErrorKind::NotAllowed { .. }) => {
                Sent::Failed(TerminalReason::Rejected)
            }
            _ => Sent::NotYet(self.worker.now() + STORE_RETRY),
        }
    }

    /// Reads the response: what a client or the conflict desk needs of it.
    async fn read(&self, result: SendResult) -> Option<ReadResponse> {
        let (head, body) = result.ok()?.into_parts();
        let most = usize::try_from(self.operation_type().max_body).unwrap_or(usize::MAX);
        let body = Limited::new(body, most).collect().await;
        let body = body.map(|body| body.to_bytes().to_vec());
        let is_whole = body.is_ok();
        let headers = head.headers.iter();
        let stored = StoredResponse {
            status: head.status.as_u16(),
            headers: headers
                .map(|(name, value)| (name.to_string(), value.as_bytes().to_vec()))
                .collect(),
            body: body.unwrap_or_default(),
        };
        Some(ReadResponse { stored, is_whole })
    }

    /// Refreshes the credential if that is the next step, and says what follows.
    async fn refresh(&self, item: &mut Item, step: Step, generation: u64) -> Step {
        if step != Step::Refresh {
            return step;
        }
        let Some(credential) = &self.credential else {
            return Step::Failed(TerminalReason::AuthFailed);
        };
        let credential: &dyn Refresh = credential.refresh();
        let succeeded = credential.refresh(generation).await.is_ok();
        item.refreshed(succeeded, self.worker.state.clock().now())
    }

    /// How the claim ends; `None` if it is sent again at once.
    fn result(
        &self,
        step: Step,
        item: &Item,
        response: Option<ReadResponse>,
    ) -> Option<ClaimResult> {
        match step {
            Step::Done => {
                let is_read = !self.operation().client.is_empty();
                let response = response.filter(|response| is_read && response.is_whole);
                let response = response.map(|response| response.stored);
                Some(ClaimResult::Completed(response))
            }
            Step::SendAt {
                source: DelaySource::Refresh,
                ..
            } => None,
            // Another endpoint is ready.
            Step::SendAt {
                delay: Duration::ZERO,
                source: DelaySource::Failover,
                ..
            } => None,
            Step::SendAt {
                delay,
                source,
                reason,
                ..
            } => {
                let metrics = self.worker.state.core().metrics();
                metrics.item_retry(delay, source, reason);
                self.log_retry(item, delay, reason);
                Some(ClaimResult::Retry(self.worker.now() + delay))
            }
            Step::Conflict => {
                let conflict = StoredConflict {
                    theirs: None,
                    etag: response.and_then(|response| etag(&response.stored.headers)),
                    fetched_at: self.worker.now(),
                };
                Some(ClaimResult::Conflict(conflict, None))
            }
            Step::Refresh => Some(ClaimResult::Failed(TerminalReason::AuthFailed)),
            Step::Failed(reason) => Some(ClaimResult::Failed(reason)),
        }
    }

    /// Fetches what the server has and asks the merge rule, if the claim ended with a conflict.
    async fn complete_conflict(&self, settlement: &mut Settlement) {
        let ClaimResult::Conflict(stored, rule) = &mut settlement.result else {
            return;
        };
        let (configuration, credential) = (&self.configuration, self.credential.as_deref());
        let etag = stored.etag.take();
        let (worker, claimed) = (self.worker, self.claimed);
        let found = FoundConflict::fetch(worker, configuration, claimed, credential, etag).await;
        *rule = found.decide(self.operation_type(), claimed);
        *stored = found.stored;
    }

    fn log_retry(&self, item: &Item, delay: Duration, reason: ResendReason) {
        let operation = self.operation();
        self.worker.state.log().retry_scheduled(&Retry {
            item: ItemId::Operation(&operation.id),
            key: &operation.destination,
            attempt: item.sent(),
            delay,
            reason,
            trace_id: operation.trace_id.as_deref().unwrap_or_default(),
        });
    }
}

/// A response that was read.
struct ReadResponse {
    stored: StoredResponse,
    /// Its body was neither too long nor broken off.
    is_whole: bool,
}

impl ReadResponse {
    /// What it cost, if it says so.
    fn used(&self) -> Option<u32> {
        let mut usage = UsageScanner::default();
        usage.read(&self.stored.body);
        usage.used()
    }
}

/// Where one attempt goes.
struct Route {
    destination: Arc<Destination>,
    uri: Uri,
    rules: Vec<Rule>,
    metrics: Arc<KeyMetrics>,
    /// Headers of the endpoint, which replace those of the operation.
    headers: HeaderMap,
}

/// Stores how a claim ended, and returns the operation as it is then; `None` if the claim was lost.
/// While the store fails, it is tried again: the operation was sent, and a lost settlement would send
/// it once more.
async fn settle(
    worker: &Worker,
    claim: ClaimId,
    settlement: Settlement,
) -> Option<StoredOperation> {
    loop {
        let settled = worker.queue.settle(claim, settlement.clone()).await;
        match settled {
            Ok(operation) => {
                worker.claims.borrow_mut().remove(&claim);
                return operation;
            }
            Err(_) => tokio::time::sleep(STORE_RETRY).await,
        }
    }
}

/// The place of an operation in its trace, if traces are exported.
fn trace_context(observers: &Observers, claimed: &Claimed) -> Option<TraceContext> {
    let sample = observers.spans()?.sample;
    let mut headers = claimed.request.headers.iter();
    let parent = headers.find(|(name, _)| name == TRACEPARENT.as_str());
    let parent = parent.and_then(|(_, value)| TraceParent::parse(value));
    let operation = &claimed.operation;
    let trace_id = operation.trace_id.as_deref();
    Some(TraceContext::of_operation(
        &operation.id,
        trace_id,
        parent,
        sample,
    ))
}

/// Records an operation for traces, if it has ended.
fn record(state: &State, trace: TraceContext, operation: &StoredOperation) {
    if operation.state.is_pending() {
        return;
    }
    state.core().observers().finish_work(FinishedWork {
        trace,
        name: format!("operation {}", operation.kind),
        started: StartTime::Wall(operation.accepted_at),
        ended: state.clock().now(),
        texts: vec![
            ("tidegate.operation_id", operation.id.clone()),
            ("tidegate.destination", operation.destination.clone()),
            ("tidegate.outcome", operation.state.as_str().to_owned()),
        ],
        numbers: vec![("tidegate.attempts", operation.counters.sent.into())],
        error: operation.state.reason().map(TerminalReason::as_str),
    });
}

/// Without a budget at all there is none later either, but settings may change.
const RETRY_BUDGET_WAIT: Duration = Duration::from_secs(10);

const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");

pub(super) fn header_pairs(
    headers: &Headers,
) -> impl Iterator<Item = (HeaderName, HeaderValue)> + '_ {
    headers.iter().filter_map(|(name, value)| {
        let name = name.parse().ok().filter(|name| *name != COST)?;
        Some((name, HeaderValue::from_bytes(value).ok()?))
    })
}

/// What the request costs, if its sender has said so.
pub(super) fn cost(request: &StoredRequest) -> Option<u32> {
    let mut headers = request.headers.iter();
    let (_, value) = headers.find(|(name, _)| name == COST.as_str())?;
    parse_cost(std::str::from_utf8(value).ok()?)
}

fn etag(headers: &Headers) -> Option<String> {
    let (_, value) = headers.iter().find(|(name, _)| name == ETAG.as_str())?;
    String::from_utf8(value.clone()).ok()
}

fn phase(outcome: &Outcome) -> Phase {
    match outcome.response {
        UpstreamResponse::Status(_) => Phase::Receiving,
        UpstreamResponse::Failed { phase, .. } => phase,
    }
}

fn status(outcome: &Outcome) -> Option<u16> {
    match outcome.response {
        UpstreamResponse::Status(status) => Some(status),
        UpstreamResponse::Failed { .. } => None,
    }
}

fn reason(outcome: &Outcome, verdict: Option<Verdict>) -> &'static str {
    match outcome.response {
        UpstreamResponse::Failed { failure, .. } => failure.as_str(),
        UpstreamResponse::Status(_) => verdict.map_or("success", Verdict::as_str),
    }
}
