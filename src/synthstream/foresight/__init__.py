"""What errors to expect: real mechanisms and real fits on simulated events of an assumed, public shape."""
