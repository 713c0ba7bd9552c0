//! The store over a socket: the store contract, what each role may do, hostile bytes, and servers that come and go.

mod contract;
mod hostile;
mod roles;
mod support;
