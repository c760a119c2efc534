"""One module for each compared package, with declarations as its documentation has them."""
