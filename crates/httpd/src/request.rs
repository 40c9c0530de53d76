//! Reading a request (RFC 9112): method, path and host; all other headers are skipped.

/// Most header lines of a request.
const HEADERS_MAX: usize = 64;

/// A request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Request<'a> {
    /// `HEAD`: the reply has no body.
    pub is_head: bool,
    /// The path, without a query.
    pub path: &'a str,
    /// Text after `?`; empty without one.
    pub query: &'a str,
    /// `Host`, with a port if it is given; empty without one.
    pub host: &'a str,
}

/// Why a request is refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fault {
    /// Not a request of HTTP/1.
    Malformed,
    /// Longer than the limit, or with too many headers.
    TooLong,
    /// Neither `GET` nor `HEAD`.
    Method,
    /// It has a body.
    Body,
}

impl Fault {
    pub(crate) fn status(self) -> u16 {
        match self {
            Fault::Malformed => 400,
            Fault::TooLong => 431,
            Fault::Method => 405,
            Fault::Body => 413,
        }
    }

    pub(crate) fn text(self) -> &'static str {
        match self {
            Fault::Malformed => "this is no HTTP request",
            Fault::TooLong => "the request is too long",
            Fault::Method => "there are GET and HEAD",
            Fault::Body => "a request has no body here",
        }
    }
}

/// The first request of these bytes.
///
/// # Errors
/// `None`: it is incomplete.
pub(crate) fn parse(bytes: &[u8]) -> Result<Request<'_>, Option<Fault>> {
    let mut headers = [httparse::EMPTY_HEADER; HEADERS_MAX];
    let mut parsed = httparse::Request::new(&mut headers);
    match parsed.parse(bytes) {
        Ok(httparse::Status::Complete(_)) => {}
        Ok(httparse::Status::Partial) => return Err(None),
        Err(httparse::Error::TooManyHeaders) => return Err(Some(Fault::TooLong)),
        Err(_) => return Err(Some(Fault::Malformed)),
    }
    let is_head = match parsed.method {
        Some("GET") => false,
        Some("HEAD") => true,
        _ => return Err(Some(Fault::Method)),
    };
    let target = parsed.path.unwrap_or("/");
    // A proxy sends the whole address.
    let target = match target.strip_prefix("http://") {
        Some(rest) => rest.find('/').map_or("/", |at| rest.get(at..).unwrap_or("/")),
        None => target,
    };
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    let mut host = "";
    for header in parsed.headers.iter() {
        let value = std::str::from_utf8(header.value).unwrap_or_default().trim();
        if header.name.eq_ignore_ascii_case("host") {
            host = value;
        }
        let has_body = header.name.eq_ignore_ascii_case("content-length") && value != "0"
            || header.name.eq_ignore_ascii_case("transfer-encoding");
        if has_body {
            return Err(Some(Fault::Body));
        }
    }
    Ok(Request { is_head, path, query, host })
}
