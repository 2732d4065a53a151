//! From a request body to an object that has the shape of its type.
