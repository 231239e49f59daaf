//! The gateway: programs swap a base URL, and their requests leave through gates.
//!
//! `http://listen/POOL/rest` goes to an endpoint of the pool, as `rest` behind its address; in forward
//! mode, requests to a proxy go to the server that they name (`forward`, `tunnel`). Every
//! request becomes one call of the library, which asks the endpoints' gates, sends, learns and sends
//! again; its attempts are made by `exchange`. This module has what concerns the clients: which
//! requests are served, which headers pass, how long a request may wait, and the responses that the
//! gateway makes itself.
//!
//! There is one worker per core, each with a single-threaded runtime and its own connections, so
//! that a request stays on its core from end to end. One listener gives each connection to the worker
//! with the fewest: a listener per worker would leave that to a hash, which is uneven with a few dozen
//! connections.

mod body;
mod clients;
mod cross_site;
mod error;
mod forward;
mod guard;
mod handle;
mod headers;
mod http2;
mod listen;
mod observed;
mod operation;
mod relay;
mod request;
mod response;
mod routes;
mod serving;
mod shared;
mod trails;
mod tunnel;
mod upgrade;
mod when_woken;
mod worker;

pub use body::{CountedBody, ServedBody};
pub use error::GatewayError;
pub use listen::{Gateway, StartError};
pub use observed::ObservedBody;
pub use routes::{Route, RouteLabel, Routes};
pub use trails::{InvalidRequestId, RequestId, RequestTrail, RequestTrails};
