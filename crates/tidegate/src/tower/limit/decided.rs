//! The decision about a request, for code that sees its response.

use std::time::Duration;

use policy::classify::Classification;

/// The decision about a request, in the extensions of its response.
///
/// With several limit layers around one service, the outermost one's is kept.
///
/// ```
/// # use http::Response;
/// use tidegate::tower::Decided;
///
/// fn describe<B>(response: &Response<B>) -> String {
///     match response.extensions().get::<Decided>() {
///         Some(decided) => format!("{:?} after {:?} in line", decided.classification, decided.waited),
///         None => "came without a limiter".to_owned(),
///     }
/// }
/// # assert_eq!(describe(&Response::new(())), "came without a limiter");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Decided {
    /// How long it waited for its permit.
    pub waited: Duration,
    /// From sending to the head of the response.
    pub latency: Duration,
    /// How the gate classified the response, and why.
    pub classification: Classification,
}
