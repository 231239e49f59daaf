//! One suite of behaviours for every kind of store.
