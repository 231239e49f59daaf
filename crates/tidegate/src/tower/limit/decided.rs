//! What became of a request on its way, for code that sees its response.

use std::time::Duration;

use policy::classify::Judgement;

/// What was decided about a request, in the extensions of its response.
///
/// Of several limits around one service the outermost one's stays.
///
/// ```
/// # use http::Response;
/// use tidegate::tower::Decided;
///
/// fn describe<B>(response: &Response<B>) -> String {
///     match response.extensions().get::<Decided>() {
///         Some(decided) => format!("{:?} after {:?} in line", decided.judgement, decided.waited),
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
    /// From sending it to the answer's head.
    pub latency: Duration,
    /// How the gate took the answer, and what decided that.
    pub judgement: Judgement,
}
