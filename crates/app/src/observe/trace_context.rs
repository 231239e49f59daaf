//! The place of a request in its trace: W3C Trace Context, level 1.
//!
//! A client may name a trace and the span that its request belongs to in `traceparent`. A header that
//! is not exactly as the standard says, or that comes twice, counts as none, and a trace of our own
//! begins. Ids of spans are computed, not drawn: that of a request from its id, those of its attempts
//! from that of the request. So nothing has to be kept for them while a request is served, and the
//! spans that are made at its end have the ids that its attempts were sent with.

use http::{HeaderMap, HeaderName, HeaderValue};
use policy::random::Random;
use ring::digest::{SHA256, digest};

/// The header of both directions.
pub(crate) const TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");

/// What a client says about the trace of its request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TraceParent {
    pub(crate) trace_id: u128,
    span_id: u64,
    is_sampled: bool,
}

impl TraceParent {
    /// Reads `traceparent`.
    pub(crate) fn read(headers: &HeaderMap) -> Option<Self> {
        let mut values = headers.get_all(&TRACEPARENT).iter();
        let (value, None) = (values.next()?, values.next()) else {
            return None;
        };
        Self::parse(value.as_bytes())
    }

    /// `00-TRACE-SPAN-FLAGS`. A later version may have more behind a further dash.
    pub(crate) fn parse(text: &[u8]) -> Option<Self> {
        let head = text.get(..LENGTH)?;
        let version = hex(&head[..2])?;
        let has_end = match version {
            0 => text.len() == LENGTH,
            255 => false,
            _ => text.len() == LENGTH || text[LENGTH] == b'-',
        };
        let has_dashes = [2, 35, 52].iter().all(|place| head[*place] == b'-');
        if !has_end || !has_dashes {
            return None;
        }
        let trace_id = hex(&head[3..35]).filter(|id| *id != 0)?;
        let span_id = hex(&head[36..52]).filter(|id| *id != 0)?;
        let flags = hex(&head[53..])?;
        Some(Self {
            trace_id,
            span_id: u64::try_from(span_id).ok()?,
            is_sampled: flags & SAMPLED != 0,
        })
    }
}

/// The length of version 00.
const LENGTH: usize = 55;
const SAMPLED: u128 = 1;

/// A number in lower-case hexadecimal digits, as the standard wants them.
fn hex(digits: &[u8]) -> Option<u128> {
    let is_digit = |digit: &u8| matches!(digit, b'0'..=b'9' | b'a'..=b'f');
    if !digits.iter().all(is_digit) {
        return None;
    }
    let text = std::str::from_utf8(digits).ok()?;
    u128::from_str_radix(text, 16).ok()
}

/// The place of a request in its trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TraceContext {
    pub(crate) trace_id: u128,
    /// The span of the request.
    pub(crate) span_id: u64,
    /// The client's span.
    pub(crate) parent: Option<u64>,
    /// Whether its spans are exported: as the client says, else by the share in the settings.
    pub(crate) is_sampled: bool,
}

impl TraceContext {
    /// For a request with this id; `sample` is the share of traces that begin here and are exported.
    pub(crate) fn new(request_id: u128, parent: Option<TraceParent>, sample: f64) -> Self {
        let span_id = span_id(request_id, 0);
        match parent {
            Some(parent) => Self {
                trace_id: parent.trace_id,
                span_id,
                parent: Some(parent.span_id),
                is_sampled: parent.is_sampled,
            },
            None => Self {
                trace_id: request_id,
                span_id,
                parent: None,
                is_sampled: Random::from_seed(span_id).unit() < sample,
            },
        }
    }

    /// For an operation, in the trace that is stored with it. The same in every process that sends it.
    /// `parent`: what its request says.
    pub(crate) fn of_operation(
        id: &str,
        trace_id: Option<&str>,
        parent: Option<TraceParent>,
        sample: f64,
    ) -> Self {
        let hash = digest(&SHA256, id.as_bytes());
        let bits = hash.as_ref()[..16].iter();
        let bits = bits.fold(0, |bits, byte| (bits << 8) | u128::from(*byte));
        let trace_id = trace_id.and_then(|id| u128::from_str_radix(id, 16).ok());
        let trace_id = trace_id.filter(|id| *id != 0).unwrap_or(bits);
        let parent = parent.filter(|parent| parent.trace_id == trace_id);
        Self {
            trace_id,
            ..Self::new(bits, parent, sample)
        }
    }

    /// The span of an attempt, counted from 1.
    pub(crate) fn attempt(&self, number: u32) -> u64 {
        span_id(self.span_id.into(), number)
    }

    /// The `traceparent` that an attempt is sent with.
    pub(crate) fn header(&self, attempt: u32) -> HeaderValue {
        let (trace, span) = (self.trace_id, self.attempt(attempt));
        let flags = u8::from(self.is_sampled);
        let text = format!("00-{trace:032x}-{span:016x}-{flags:02x}");
        HeaderValue::try_from(text).expect("made of digits and dashes")
    }
}

/// An id that is never zero, which would be none.
fn span_id(seed: u128, number: u32) -> u64 {
    let high = u64::try_from(seed >> 64).unwrap_or(u64::MAX);
    let low = u64::try_from(seed & u128::from(u64::MAX)).unwrap_or(u64::MAX);
    let mixed = Random::from_seed(high).next_u64() ^ low;
    let id = Random::from_seed(mixed.wrapping_add(number.into())).next_u64();
    id.max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TRACE: &str = "0af7651916cd43dd8448eb211c80319c";
    const VALID: &[u8] = b"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

    fn read(values: &[&'static str]) -> Option<TraceParent> {
        let mut headers = HeaderMap::new();
        for value in values {
            headers.append(TRACEPARENT, HeaderValue::from_static(value));
        }
        TraceParent::read(&headers)
    }

    #[test]
    fn reads_what_the_standard_allows() {
        let valid = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
        let expected = TraceParent {
            trace_id: u128::from_str_radix(TRACE, 16).unwrap(),
            span_id: 0xb7ad_6b71_6920_3331,
            is_sampled: true,
        };
        assert_eq!(read(&[valid]), Some(expected));
        let later = "cc-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01-more";
        assert_eq!(read(&[later]), Some(expected));
        let unsampled = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-02";
        assert!(!read(&[unsampled]).unwrap().is_sampled);
    }

    #[test]
    fn refuses_everything_else() {
        for bad in [
            "",
            "00",
            "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331",
            "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01-more",
            "cc-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01.more",
            "ff-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
            "00-0AF7651916CD43DD8448EB211C80319C-b7ad6b7169203331-01",
            "00-00000000000000000000000000000000-b7ad6b7169203331-01",
            "00-0af7651916cd43dd8448eb211c80319c-0000000000000000-01",
            "00_0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
            "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-0g",
            "+0-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
        ] {
            assert_eq!(read(&[bad]), None, "{bad}");
        }
        let valid = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
        assert_eq!(read(&[valid, valid]), None);
    }

    #[test]
    fn attempts_name_their_own_span_of_the_same_trace() {
        let parent = read(&["00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"]);
        let context = TraceContext::new(7, parent, 0.0);
        assert_eq!(context.parent, Some(0xb7ad_6b71_6920_3331));
        let header = context.header(2);
        let text = header.to_str().unwrap();
        let span = format!("{:016x}", context.attempt(2));
        assert_eq!(text, format!("00-{TRACE}-{span}-01"));
        let ids = [context.span_id, context.attempt(1), context.attempt(2)];
        assert!(ids[0] != ids[1] && ids[1] != ids[2] && ids[0] != ids[2]);
    }

    #[test]
    fn operation_has_the_same_span_in_every_process() {
        let parent = TraceParent::parse(VALID);
        let context = TraceContext::of_operation("op_1", Some(TRACE), parent, 0.0);
        assert_eq!(
            TraceContext::of_operation("op_1", Some(TRACE), parent, 0.0),
            context
        );
        assert_eq!(format!("{:032x}", context.trace_id), TRACE);
        assert_eq!(context.parent, Some(0xb7ad_6b71_6920_3331));
        assert!(context.is_sampled);
        let other = TraceContext::of_operation("op_2", Some(TRACE), parent, 0.0);
        assert_ne!(other.span_id, context.span_id);
    }

    #[test]
    fn operation_follows_no_span_of_another_trace() {
        let stored = "11111111111111111111111111111111";
        let parent = TraceParent::parse(VALID);
        let context = TraceContext::of_operation("op_1", Some(stored), parent, 0.0);
        assert_eq!(format!("{:032x}", context.trace_id), stored);
        assert_eq!(context.parent, None);
        assert!(!context.is_sampled);
        for unreadable in [None, Some("x"), Some("0")] {
            let context = TraceContext::of_operation("op_1", unreadable, None, 1.0);
            assert!(context.trace_id != 0 && context.is_sampled);
        }
    }

    #[test]
    fn client_decides_about_its_traces_and_the_share_about_ours() {
        let unsampled = read(&["00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00"]);
        assert!(!TraceContext::new(1, unsampled, 1.0).is_sampled);
        assert!(TraceContext::new(1, None, 1.0).is_sampled);
        assert!(!TraceContext::new(1, None, 0.0).is_sampled);
        let is_sampled = |id: &u128| TraceContext::new(*id, None, 0.1).is_sampled;
        let count = (1_u128..=10_000).filter(is_sampled).count();
        assert!((900..1100).contains(&count), "{count}");
    }
}
