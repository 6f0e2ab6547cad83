"""One module for each framework that needs more than `tenuto.wrap`; none is loaded unasked."""
