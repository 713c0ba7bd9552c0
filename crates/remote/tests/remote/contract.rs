//! A store that is used over a socket keeps the store contract, with the role of its owner.

use crate::support::TestServer;
use stepback_testkit::contract::Clause;

stepback_testkit::store_contract!(|clause: Clause| clause(&TestServer::start().owner()));
