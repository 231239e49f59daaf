//! Virtual time over Tidegate policies.
