//! Between whole numbers and fractions.

/// The whole part of a number; what is negative or no number is zero.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "`as` saturates and takes NaN to zero, which is what is wanted"
)]
pub(crate) fn whole(value: f64) -> u64 {
    value as u64
}
