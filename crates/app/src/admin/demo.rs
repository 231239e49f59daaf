//! The guided tour of the demo. Any other server has none.

use std::fmt;
use std::sync::Arc;

use axum::Json;
use axum::extract::State;

use super::api::AdminState;
use super::bodies::{DemoTour, Problem};
use super::problem::Refused;

/// Knows how far the tour is. The demo implements it, so that this module does not depend on the demo.
pub trait TourGuide: fmt::Debug + Send + Sync {
    /// The tour at this moment.
    fn tour(&self) -> DemoTour;
}

/// The guided tour of `tidegate demo`
///
/// Only a server that was started by `tidegate demo` has one.
#[utoipa::path(
    get, operation_id = "showDemo", path = "/api/v1/demo", tag = "health",
    responses(
        (status = 200, description = "The tour", body = DemoTour),
        (status = 404, description = "This server is no demo", body = Problem, content_type = "application/problem+json")
    )
)]
pub(super) async fn show(State(admin): State<Arc<AdminState>>) -> Result<Json<DemoTour>, Refused> {
    let guide = admin.tour_guide.get();
    let guide = guide.ok_or_else(|| Refused::not_found("this server is no demo"))?;
    Ok(Json(guide.tour()))
}
