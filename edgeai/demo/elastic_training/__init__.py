"""The example of elastic training: workers come and go while one network of digits is trained."""
