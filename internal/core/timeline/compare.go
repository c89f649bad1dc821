package timeline
