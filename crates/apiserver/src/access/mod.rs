//! Who is calling: certificates, tokens, and the keys behind them.
