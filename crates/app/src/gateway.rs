//! The gateway: programs swap a base URL, and their requests leave through gates.
//!
//! `http://listen/POOL/rest` goes to an endpoint of the pool, as `rest` behind its address. Every
//! request becomes one call of the library, which asks the endpoints' gates, sends, learns and sends
//! again; here is only what has to do with HTTP: who may ask, which headers pass, how long a caller
//! waits, and what it is told when the answer is ours.
//!
//! There is one worker per core, each with a single-threaded runtime and its own connections, so
//! that a request stays on its core from end to end. One listener deals connections out to whoever
//! has fewest: a listener per worker would leave that to chance, and with a few dozen connections
//! chance is unfair.

mod body;
mod connection;
mod cross_site;
mod error;
mod framing;
mod guard;
mod handle;
mod headers;
mod listen;
mod path;
mod request;
mod response;
mod routes;
mod state;
mod trails;
mod worker;

pub use body::ServedBody;
pub use error::GatewayError;
pub use listen::{Gateway, StartError};
pub use routes::{Route, Routes};
pub use trails::{InvalidRequestId, RequestId, RequestTrail, RequestTrails};
