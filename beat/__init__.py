"""The beat: any number of replicas, one of which leads and hands each slot of the schedule to its lane.

`leader` holds the lock, `alarm` rings at each slot, `now` knows what time it is, `firing` is the loop, and `fire`
decides and sends.
"""
