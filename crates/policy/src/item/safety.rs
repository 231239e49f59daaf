//! The effect of a request that arrives twice.

/// The effect of sending a request twice, by its method, in the terms of RFC 9110.
///
/// ```
/// # use tidegate_policy::item as tidegate;
/// use tidegate::Safety;
///
/// assert_eq!(Safety::of("GET"), Safety::Safe);
/// assert_eq!(Safety::of("PUT"), Safety::Idempotent);
/// assert_eq!(Safety::of("POST"), Safety::Unsafe);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Safety {
    /// It only reads. GET, HEAD, OPTIONS, TRACE.
    Safe,
    /// The same effect as sending it once. PUT, DELETE.
    Idempotent,
    /// It may be executed twice. POST, PATCH, and every unknown method.
    Unsafe,
}

impl Safety {
    /// The class of `method`. Methods are case-sensitive, as in HTTP: `get` is not GET. Unknown
    /// methods are unsafe.
    pub fn of(method: &str) -> Self {
        match method {
            "GET" | "HEAD" | "OPTIONS" | "TRACE" => Self::Safe,
            "PUT" | "DELETE" => Self::Idempotent,
            _ => Self::Unsafe,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classifies_methods() {
        for method in ["GET", "HEAD", "OPTIONS", "TRACE"] {
            assert_eq!(Safety::of(method), Safety::Safe, "{method}");
        }
        for method in ["PUT", "DELETE"] {
            assert_eq!(Safety::of(method), Safety::Idempotent, "{method}");
        }
        for method in ["POST", "PATCH", "CONNECT", "PROPFIND", "get", "", "GET "] {
            assert_eq!(Safety::of(method), Safety::Unsafe, "{method}");
        }
    }
}
