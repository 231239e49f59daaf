//! What must survive a restart.
