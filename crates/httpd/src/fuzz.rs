//! Fuzz targets of this crate.

use crate::request::parse;

/// Parses bytes as a request, also all their beginnings: the answer to a whole request does not depend on what follows.
pub fn request(bytes: &[u8]) {
    let whole = parse(bytes);
    if let Ok(request) = whole {
        assert!(!request.path.contains('?'));
        let longer = [bytes, b"GET"].concat();
        assert_eq!(parse(&longer), whole);
    }
    let first = (0..bytes.len().min(256)).map(|n| parse(&bytes[..n])).find(|part| *part != Err(None));
    if let (Some(Ok(first)), Ok(whole)) = (first, whole) {
        assert_eq!(first, whole);
    }
}
