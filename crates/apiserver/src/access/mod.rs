//! Who is calling: certificates, tokens, and the keys behind them.

mod certificate;
pub mod files;
pub mod pki;
