//! Lines, and how they get to the sink.
