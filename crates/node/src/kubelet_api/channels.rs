//! Several streams in one WebSocket: the first byte of a message says which one. Pure.

use serde::Deserialize;
use serde_json::{Value, json};

pub const STDIN: u8 = 0;
pub const STDOUT: u8 = 1;
pub const STDERR: u8 = 2;
pub const ERROR: u8 = 3;
pub const RESIZE: u8 = 4;
const END: u8 = 255;

/// What this node speaks, the best first.
pub const PROTOCOLS: [&str; 2] = ["v5.channel.k8s.io", "v4.channel.k8s.io"];

/// The same of SPDY, where newer ones are no different.
pub const SPDY_PROTOCOLS: [&str; 2] = ["v4.channel.k8s.io", "v5.channel.k8s.io"];

/// What a client says.
#[derive(Debug, PartialEq, Eq)]
pub enum Said<'a> {
    /// Input.
    Input(&'a [u8]),
    /// No more input (v5).
    EndOfInput,
    /// The size of its window.
    Size(u16, u16),
    /// Nothing that matters.
    Nothing,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Size {
    width: u16,
    height: u16,
}

/// Reads a message.
pub fn said(message: &[u8]) -> Said<'_> {
    match message {
        [STDIN, input @ ..] => Said::Input(input),
        [END, STDIN, ..] => Said::EndOfInput,
        [RESIZE, size @ ..] => match serde_json::from_slice(size) {
            Ok(Size { width, height }) => Said::Size(width, height),
            Err(_) => Said::Nothing,
        },
        _ => Said::Nothing,
    }
}

/// A message of a stream.
pub fn message(channel: u8, bytes: &[u8]) -> Vec<u8> {
    [&[channel], bytes].concat()
}

/// That no more comes on a channel.
pub fn end(channel: u8) -> [u8; 2] {
    [END, channel]
}

/// How a command ended, as clients want to read it.
pub fn status(code: i32) -> Value {
    if code == 0 {
        return json!({"metadata": {}, "status": "Success"});
    }
    json!({
        "metadata": {},
        "status": "Failure",
        "message": format!("command terminated with non-zero exit code: exit status {code}"),
        "reason": "NonZeroExitCode",
        "details": {"causes": [{"reason": "ExitCode", "message": code.to_string()}]},
    })
}

/// That it could not be started.
pub fn failure(message: &str) -> Value {
    json!({
        "metadata": {}, "status": "Failure", "reason": "InternalError", "code": 500,
        "message": format!("Internal error occurred: {message}"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_byte_is_the_stream() {
        assert_eq!(said(b"\0ls"), Said::Input(b"ls"));
        assert_eq!(said(b"\xff\0"), Said::EndOfInput);
        assert_eq!(said(b"\x04{\"Width\":80,\"Height\":24}"), Said::Size(80, 24));
        for odd in [&b""[..], b"\x04{", b"\x04{\"Width\":99999999}", b"\x07x", b"\xff"] {
            assert_eq!(said(odd), Said::Nothing);
        }
        assert_eq!(message(STDOUT, b"x"), b"\x01x");
    }

    #[test]
    fn an_exit_code_is_told_as_a_cause() {
        assert_eq!(status(0)["status"], "Success");
        assert_eq!(status(3)["details"]["causes"][0]["message"], "3");
    }
}
