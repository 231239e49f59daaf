//! Reports ends of operations by webhook.
//!
//! A report is an operation itself, so that it is delivered as durably. It is stored in the transaction
//! that marks the end as reported: there is exactly one per end. Its type is built in, has no webhook,
//! and is accepted from no one else: a report's own end is never reported.
//!
//! Reports are signed as [Standard Webhooks](https://www.standardwebhooks.com), when they are
//! sent: receivers refuse old timestamps, and the secret stays out of the queue.

use http::{HeaderMap, HeaderName, HeaderValue};
use policy::time::WallTime;
use ring::hmac;
use serde_json::{Value, json};
use store::operations::{NewOperation, StoredOperation, StoredRequest};

use super::Worker;
use crate::base64;
use crate::log::rfc3339;
use crate::settings::{Settings, WEBHOOK_OPERATION, Webhook};
use crate::state::new_operation_id;

/// So many ends are read at once.
const MAX_READ: usize = 100;

/// Stores a report for every operation that has ended and is to be reported.
pub(super) async fn report_ended(worker: &Worker) {
    loop {
        let Ok(ended) = worker.queue.unreported(MAX_READ).await else {
            return;
        };
        let is_last = ended.len() < MAX_READ;
        let configuration = worker.state.configuration();
        for operation in &ended {
            let settings = configuration.settings();
            let report = report(operation, settings, worker.now());
            let lane = report.as_ref().map(NewOperation::lane);
            if worker.queue.report(operation.number, report).await.is_err() {
                return;
            }
            if let Some(lane) = lane {
                worker.state.ready_lanes().add(lane, worker.now());
            }
        }
        if is_last {
            return;
        }
    }
}

/// The report of an operation that has ended; `None` if its type has no webhook any more.
fn report(operation: &StoredOperation, settings: &Settings, now: WallTime) -> Option<NewOperation> {
    let webhook = settings.operation(&operation.kind).webhook.as_ref()?;
    let operation_type = settings.operation(WEBHOOK_OPERATION);
    let id = new_operation_id(now);
    Some(NewOperation {
        kind: WEBHOOK_OPERATION.to_owned(),
        destination: policy::key::normalize(webhook.url.as_str()).ok()?,
        request: StoredRequest {
            method: "POST".to_owned(),
            url: webhook.url.to_string(),
            headers: vec![("content-type".to_owned(), b"application/json".to_vec())],
            body: payload(operation, now).to_string().into_bytes(),
            base: None,
            resource: None,
        },
        summary: format!("POST {}", crate::settings::shown_url(webhook.url.as_str())),
        idempotency_key: id.clone(),
        fingerprint: Vec::new(),
        client: String::new(),
        credential: None,
        backoff: None,
        order_key: None,
        priority: 0,
        trace_id: operation.trace_id.clone(),
        accepted_at: now,
        expires_at: now + operation_type.expires_after,
        retain: operation_type.retain,
        is_reported: false,
        id,
    })
}

/// What is reported: no body, no header, and of the URL only the host.
fn payload(operation: &StoredOperation, now: WallTime) -> Value {
    let ended_at = operation.ended_at.unwrap_or(now);
    json!({
        "type": format!("operation.{}", operation.state),
        "timestamp": rfc3339(ended_at),
        "data": {
            "id": operation.id,
            "type": operation.kind,
            "state": operation.state.as_str(),
            "reason": operation.state.reason().map(|reason| reason.as_str()),
            "attempts": operation.counters.sent,
            "key": operation.destination,
            "accepted_at_ms": operation.accepted_at.as_unix_millis(),
            "ended_at_ms": ended_at.as_unix_millis(),
            "trace_id": operation.trace_id,
        },
    })
}

/// The webhook that a report is for, as it is configured now; `None` if that is gone, or on another
/// host by now.
pub(super) fn webhook_of<'a>(
    settings: &'a Settings,
    destination: &str,
    payload: &[u8],
) -> Option<&'a Webhook> {
    let payload: Value = serde_json::from_slice(payload).ok()?;
    let kind = payload["data"]["type"].as_str()?;
    let webhook = settings.operation(kind).webhook.as_ref()?;
    let key = policy::key::normalize(webhook.url.as_str()).ok()?;
    (key == destination).then_some(webhook)
}

/// Signs a report: `webhook-id`, `webhook-timestamp` and `webhook-signature`.
pub(super) fn sign(
    headers: &mut HeaderMap,
    webhook: &Webhook,
    id: &str,
    payload: &[u8],
    now: WallTime,
) {
    let timestamp = now.as_unix_millis().div_euclid(1000).to_string();
    let mut context = hmac::Context::with_key(&hmac::Key::new(hmac::HMAC_SHA256, &webhook.key()));
    for part in [id.as_bytes(), b".", timestamp.as_bytes(), b".", payload] {
        context.update(part);
    }
    let signature = format!("v1,{}", base64::encode(context.sign().as_ref()));
    for (name, value) in [
        ("webhook-id", id),
        ("webhook-timestamp", &timestamp),
        ("webhook-signature", &signature),
    ] {
        if let Ok(value) = HeaderValue::from_str(value) {
            headers.insert(HeaderName::from_static(name), value);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::Secret;

    #[test]
    fn signs_the_published_example() {
        let webhook = Webhook {
            url: "https://hooks.example.com".parse().unwrap(),
            secret: Secret::new("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"),
        };
        let mut headers = HeaderMap::new();
        let now = WallTime::from_unix_millis(1_614_265_330_999);
        let payload = br#"{"test": 2432232314}"#;
        sign(
            &mut headers,
            &webhook,
            "msg_p5jXN8AQM9LWM0D4loKWxJek",
            payload,
            now,
        );
        assert_eq!(headers["webhook-id"], "msg_p5jXN8AQM9LWM0D4loKWxJek");
        assert_eq!(headers["webhook-timestamp"], "1614265330");
        let signature = "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=";
        assert_eq!(headers["webhook-signature"], signature);
    }
}
